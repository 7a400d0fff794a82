"""Compare the file formats on this machine and on emulated storage, here and now.

    table = compare_formats(cu.data_path("events"))
    table  # the tables, one for each storage
    table.picture()

The files are written into a temporary folder, so that writing is measured too. Nobody waits for the
emulated storage: its time is added up (see hardware.virtual_time).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from course_utils.errors import CourseError
from course_utils.hardware.machine import facts as machine_facts
from course_utils.loading.events import FORMATS, EventArrays, read_labels
from course_utils.paths import need_room
from notebooks.stories.formats import drawing as format_drawing
from notebooks.stories.formats.costs import Cost, Reader, Storages, write

PRESETS = ("busy Lustre", "S3")
MOST = 1_000  # events that are written; more take longer and say the same


@dataclass(frozen=True)
class FormatRow:
    """One format.

    Attributes:
        name: as in `data_scripts.convert_events --to`.
        write_s: seconds to write it; what the system still keeps in memory then is not waited for.
        size: bytes of its files.
        costs: what reading costs, by storage and pattern ("sequential", "random", "one event").
    """

    name: str
    write_s: float
    size: int
    costs: Mapping[tuple[str, str], Cost]


@dataclass(frozen=True)
class FormatTable:
    """What each format costs on each storage; it draws itself."""

    rows: Sequence[FormatRow]
    events: int
    pulses: int
    machine: str

    @property
    def names(self) -> list[str]:
        """The formats, the fastest over all storages and patterns first."""
        ratios = {
            row.name: [self.ratio(row.name, *place) for place in row.costs] for row in self.rows
        }
        return sorted(ratios, key=lambda name: float(np.mean(np.log(ratios[name]))))

    @property
    def storages(self) -> list[str]:
        """The storages, this disk first; it is left out cold where it cannot be made so."""
        return list(dict.fromkeys(storage for storage, _ in self.rows[0].costs))

    def row(self, name: str) -> FormatRow:
        """Return what is known of one format."""
        return next(row for row in self.rows if row.name == name)

    def cost(self, name: str, storage: str, pattern: str) -> Cost:
        """Return what it costs to read a format from a storage in one of three ways."""
        return self.row(name).costs[storage, pattern]

    def ratio(self, name: str, storage: str, pattern: str) -> float:
        """Return how many times as long it takes as with the best format there."""
        best = min(row.costs[storage, pattern].seconds for row in self.rows)
        return self.cost(name, storage, pattern).seconds / best

    def picture(self) -> Figure:
        """Draw the time of each format relative to the best, a panel for each storage."""
        return format_drawing.picture(self)

    def __repr__(self) -> str:
        """Show all tables as text."""
        return format_drawing.text(self)

    def _repr_html_(self) -> str:
        return format_drawing.page(self)


def compare_formats(
    folder: str | Path,
    *,
    most: int = MOST,
    presets: Sequence[str] = PRESETS,
    names: Sequence[str] | None = None,
) -> FormatTable:
    """Write events in every format, read them in three ways, and return what that cost.

    "Sequential" is 256 events in order, "random" 64 from anywhere in one batch, as a `DataLoader`
    asks for them; 1,000 events or more should be there, or the two mean the same.

    Args:
        folder: events as make_events writes them.
        most: how many of them to take, evenly spread over the folder.
        presets: storages to emulate.
        names: formats to compare, as `open_events` knows them; None: all.

    Raises:
        FileNotFoundError: the folder holds no events.
        CourseError: there is no room for a copy in each format.
    """
    read_labels(folder)  # says it in words where there are no events
    events = EventArrays.load(Path(folder))
    events = events.take(np.arange(len(events))[:: -(-len(events) // most)])  # from all over it
    chosen = tuple(names or FORMATS)
    if strange := [name for name in chosen if name not in FORMATS]:
        raise CourseError(f"There is no format {strange[0]!r}; take some of {', '.join(FORMATS)}.")
    # beside the data: a temporary folder is often kept in memory, which is never cold
    data = Path(folder).absolute().parent
    beside = data if os.access(data, os.W_OK) else Path(gettempdir())
    room = len(FORMATS) * (2 * events.pulses.nbytes + 8192 * len(events))
    need_room(beside, room, otherwise="or compare fewer events with most=500")
    rows = {}
    with TemporaryDirectory(prefix=".formats-", dir=beside, ignore_cleanup_errors=True) as place:
        storages = Storages(Path(place), presets)
        # npy goes first: it brings the labels, which all others need
        for name in tqdm(dict.fromkeys(["npy", *chosen]), unit="format", disable=None):
            rows[name] = _row(name, events, storages)
    return FormatTable(
        [rows[name] for name in chosen], len(events), len(events.pulses), machine_facts.stamp()
    )


def _row(name: str, events: EventArrays, storages: Storages) -> FormatRow:
    write_s, size = write(name, events, storages.folder)
    return FormatRow(name, write_s, size, Reader(name, storages).costs())
