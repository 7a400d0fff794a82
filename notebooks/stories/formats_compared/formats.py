"""Compare the file formats on this machine and on emulated storage, here and now.

    table = compare_formats(cu.data_path("events"))  # or with names=VARIANTS
    table  # the tables, one for each storage
    table.picture()

The files are written into a temporary folder, so that writing is measured too. Nobody waits for the
emulated storage: its time is added up (see hardware.storage.VirtualClock). Every figure is that of
a file that is open already, since a worker opens it once, and of storage that has forgotten it,
except where it says "warm". What is counted includes the opening of files that hold one event each.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, gettempdir
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tqdm import tqdm

from course_utils.hardware.machine import can_forget, drop_cache
from course_utils.hardware.machine import facts as machine_facts
from course_utils.hardware.storage import (
    SlowFileSystem,
    VirtualClock,
    counting_storage,
    slow_storage,
)
from course_utils.loading.events import FORMATS, EventArrays, Events, open_events, read_labels
from course_utils.paths import need_room
from course_utils.words import duration
from notebooks.stories.figures import drawing
from notebooks.stories.formats_compared import shown

PRESETS = ("busy Lustre", "S3")
WARM, COLD, S3 = "this disk, warm", "this disk, cold", "emulated S3"
AMPLIFICATION = "bytes read for each byte wanted"
NAMES = ("npz", "npy", "hdf5", "parquet", "sqlite", "tar", "root")
VARIANTS = ("npz-deflate", "hdf5-chunked", "hdf5-gzip", "hdf5-misfit", "parquet-zstd")
MOST = 1_000  # events that are written; more take longer and say the same
PULSE = 16  # bytes

Batch = list[int]
Draw = list[Batch]


class Pattern(NamedTuple):
    """A way to ask for events."""

    size: int  # of a batch
    batches: int
    repeats: int  # draws, of which the median counts
    marker: str  # shape as well as colour tells them apart
    colour: str


# Events at random out of a terabyte share no unit and no page: each costs what "one event" does.
PATTERNS = {
    "in order": Pattern(64, 4, 3, "s", shown.COLOURS[0]),
    "one event": Pattern(1, 1, 7, "o", shown.COLOURS[3]),
}
_GROUPS = [("", 1)] * 3 + [(name, 2) for name in ("time", "requests", "amplification")]
_NOTE = (
    "“In order” is 256 neighbouring events, “one event” one from anywhere. Time is that of a file "
    "which is open; first comes how many times the best of its column it is. Requests are reads "
    "that reach the storage; opened files stand in brackets. Amplification is bytes read for each "
    "byte of pulses. On this disk both are counted without page cache, and a mapped npy reads "
    "pages of 4 KiB."
)
_NEVER_COLD = " This system cannot be asked to forget a file, so that nothing here is cold."


@dataclass(frozen=True)
class Cost:
    """What it took to read some events, as a median over a few draws of them.

    Attributes:
        seconds: the wall's on this disk; emulated and computing time on emulated storage.
        requests: reads that went to the storage.
        opens: how often a file was opened or looked up.
        amplification: bytes that the storage delivered for each byte of pulses.
    """

    seconds: float
    requests: float
    opens: float
    amplification: float


@dataclass(frozen=True)
class FormatRow:
    """One format.

    Attributes:
        name: as in `data_scripts.convert_events --to`.
        write_s: seconds to write it; what the system still keeps in memory then is not waited for.
        size: bytes of its files.
        costs: what reading costs, by storage and pattern ("in order", "one event").
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
        """Return what it costs to read a format from a storage in one of two ways."""
        return self.row(name).costs[storage, pattern]

    def ratio(self, name: str, storage: str, pattern: str) -> float:
        """Return how many times as long it takes as with the best format there."""
        best = min(row.costs[storage, pattern].seconds for row in self.rows)
        return self.cost(name, storage, pattern).seconds / best

    def picture(self) -> Figure:
        """Draw the time of each format relative to the best, and how much it reads in vain."""
        panels = {
            storage: {how: [self.ratio(name, storage, how) for name in self.names] for how in looks}
            for storage, looks in dict.fromkeys((WARM, *self.storages[-2:]), PATTERNS).items()
        }
        read = {how: [self.cost(n, S3, how).amplification for n in self.names] for how in PATTERNS}
        height = range(len(self.names), 0, -1)
        title = f"{self.events:,} events · {self.machine}"
        tall, columns = 1.6 + 0.3 * len(self.names), len(panels) + 1
        with drawing(11.5, tall, columns=columns, title=title, sharey=True) as (figure, axes):
            drawn = {**panels, AMPLIFICATION: read}
            for panel, (title, found) in zip(axes, drawn.items(), strict=True):
                for how, look in PATTERNS.items():
                    panel.plot(found[how], height, look.marker, color=look.colour, label=how)
                panel.set(xscale="log", xlabel="times the best" if title in panels else "")
                panel.set_title(title, fontsize="medium")
                panel.grid(color="gray", alpha=0.3, linewidth=0.5)
            axes[0].set_yticks(height, [FORMATS[name].title for name in self.names])
            legend = axes[0].get_legend_handles_labels()
            figure.legend(*legend, loc="outside lower right", ncols=2, frameon=False)
        return figure

    def __repr__(self) -> str:
        return self._title

    def _repr_html_(self) -> str:
        """Show a table for each storage, of which the first is open."""
        head = ["format", "size", "write", *[*PATTERNS] * 3]
        parts = [
            f"<summary>{escape(storage)}</summary>"
            f"{shown.table(head, list(self._cells(storage)), _GROUPS)}</details>"
            for storage in self.storages
        ]
        return shown.page(self._title, f'<details open="">{"<details>".join(parts)}', self._note)

    @property
    def _title(self) -> str:
        size = PULSE * self.pulses / 1e6
        return f"{self.events:,} events, {size:,.1f} MB of pulses · {self.machine}"

    @property
    def _note(self) -> str:
        return _NOTE if COLD in self.storages else _NOTE + _NEVER_COLD

    def _cells(self, storage: str) -> Iterator[list[str]]:
        """Yield 9 cells for each format: name, size, writing, two times, twice two counts."""
        for name in self.names:
            row = self.row(name)
            costs = {pattern: row.costs[storage, pattern] for pattern in PATTERNS}
            yield [
                FORMATS[name].title,
                f"{row.size / (PULSE * self.pulses):.2f}×",
                duration(1e9 * row.write_s),
                *(
                    f"{_times(self.ratio(name, storage, pattern))} {duration(1e9 * cost.seconds)}"
                    for pattern, cost in costs.items()
                ),
                *(_requests(cost) for cost in costs.values()),
                *(f"{cost.amplification:.3g}" for cost in costs.values()),
            ]


def _times(ratio: float) -> str:
    return "1×" if ratio == 1 else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:,.0f}×"


def _requests(cost: Cost) -> str:
    opened = f" (+{cost.opens:,.0f})" if cost.opens else ""
    return f"{cost.requests:,.0f}{opened}"


def compare_formats(
    folder: str | Path, names: Sequence[str] = NAMES, *, most: int = MOST
) -> FormatTable:
    """Write events in some formats, read them in two ways, and return what that cost.

    "In order" is 256 events as they lie, "one event" one from anywhere; 1,000 events or more should
    be there, or the two mean the same.

    Args:
        folder: events as make_events writes them.
        names: formats, of those that events can have; "npy" is always among them.
        most: how many of them to take, evenly spread over the folder.

    Raises:
        FileNotFoundError: the folder holds no events.
        CourseError: there is no room for a copy in each format.
    """
    read_labels(folder)  # says it in words where there are no events
    events = EventArrays.load(Path(folder))
    events = events.take(np.arange(len(events))[:: -(-len(events) // most)])  # from all over it
    # beside the data: a temporary folder is often kept in memory, which is never cold
    data = Path(folder).absolute().parent
    beside = data if os.access(data, os.W_OK) else Path(gettempdir())
    names = ["npy", *(name for name in names if name != "npy")]  # it brings the labels, for all
    room = len(names) * (2 * events.pulses.nbytes + 8192 * len(events))
    need_room(beside, room, otherwise="or compare fewer events with most=500")
    rows = []
    with TemporaryDirectory(prefix=".formats-", dir=beside, ignore_cleanup_errors=True) as place:
        for name in tqdm(names, unit="format", disable=None):
            write_s, size = write(name, events, Path(place))
            rows.append(FormatRow(name, write_s, size, Reader(name, Path(place)).costs()))
    return FormatTable(rows, len(events), len(events.pulses), machine_facts.stamp())


def write(name: str, events: EventArrays, folder: Path) -> tuple[float, int]:
    """Write format `name` into `folder`, "npy" with the labels; return the seconds and bytes."""
    entry, start = folder / FORMATS[name].entry, time.perf_counter()
    if name == "npy":
        events.save(folder)
    else:
        FORMATS[name].write(events, entry)
    seconds = time.perf_counter() - start
    files = [entry, *entry.rglob("*")] if entry.is_dir() else [entry]
    return seconds, sum(file.stat().st_size for file in files if file.is_file())


def draws(count: int, pattern: str) -> Iterator[Draw]:
    """Yield which events to read: a few draws, each a list of batches; event 0 opens the file."""
    rng = np.random.default_rng([0, list(PATTERNS).index(pattern)])
    size, batches, repeats = PATTERNS[pattern][:3]
    length = min(size * batches, count - 1)
    for _ in range(repeats):
        chosen = rng.integers(1, count - length + 1) + np.arange(length)
        yield [chosen[first : first + size].tolist() for first in range(0, length, size)]


class Reader:
    """One format of the events in a folder, to be read in all ways."""

    def __init__(self, name: str, folder: Path):
        """Take format `name` of the events in `folder`; npy has to be there too."""
        self._name, self._folder = name, folder.absolute()
        self._lengths: NDArray[np.int64] = np.diff(np.load(folder / "npy/offsets.npy"))

    def costs(self) -> dict[tuple[str, str], Cost]:
        """Return the cost by storage and pattern: this disk, and emulated ones over its files."""
        found = {}
        counting = counting_storage(self._folder)
        emulated = [slow_storage(self._folder, preset) for preset in PRESETS]
        for pattern in PATTERNS:
            chosen = list(draws(len(self._lengths), pattern))
            # what is emulated hardly scatters; a cold draw of 256 files takes a second to prepare
            few = chosen if pattern == "one event" else chosen[:1]
            counted = self._on(counting, few)
            for storage, seconds in self._on_disk(chosen, few).items():
                found[storage, pattern] = replace(counted, seconds=seconds)
            for fs in emulated:
                found[f"emulated {fs.preset.name}", pattern] = self._on(fs, few)
        return found

    def _opened(self, fs: SlowFileSystem | None = None) -> Events:
        dataset = open_events(self._folder, self._name, fs=fs)
        dataset[0]
        return dataset

    def _on_disk(self, chosen: list[Draw], few: list[Draw]) -> dict[str, float]:
        dataset = self._opened()
        _read_all(dataset, chosen[-1])  # imports, and what the system reads ahead
        seconds = {WARM: median(_seconds(dataset, draw) for draw in chosen)}
        if can_forget():
            seconds[COLD] = median(self._cold(draw) for draw in few)
        return seconds

    def _cold(self, draw: Draw) -> float:
        dataset = self._opened()  # anew: a mapped page that was touched cannot be forgotten
        for path in {dataset.path_of(index) for batch in draw for index in batch}:
            drop_cache(path)
        return _seconds(dataset, draw)

    def _on(self, fs: SlowFileSystem, chosen: Iterable[Draw]) -> Cost:
        clock = VirtualClock(fs)
        dataset = self._opened(fs)
        seconds, requests, opens, read, wanted = [], [], [], 0, 0
        for draw in chosen:
            fs.drop_caches()
            fs.reset_counters()
            start = clock()
            _read_all(dataset, draw)
            seconds.append((clock() - start) / 1e9)
            counters = fs.counters()
            requests.append(counters.requests)
            opens.append(counters.opens + counters.lookups)
            read += counters.bytes_read
            wanted += PULSE * sum(int(self._lengths[batch].sum()) for batch in draw)
        return Cost(median(seconds), median(requests), median(opens), read / max(1, wanted))


def _read_all(dataset: Events, draw: Draw) -> None:
    for batch in draw:
        dataset.__getitems__(batch)


def _seconds(dataset: Events, draw: Draw) -> float:
    start = time.perf_counter()
    _read_all(dataset, draw)
    return time.perf_counter() - start
