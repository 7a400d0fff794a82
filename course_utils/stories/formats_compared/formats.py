"""Measure the file formats on this disk and on emulated storage.

    table = compare_formats(cu.data_path("events"))  # or with names=VARIANTS
    table  # one table per storage
    table.picture()

The files are written into a temporary folder, so that writing is measured too. The time of emulated
storage is computed without waiting (see hardware.storage.VirtualClock). All figures are for a file
that is already open, because a worker opens it only once. Emulated storage has no page cache,
and this disk is warm. For files with one event each, the figures include opening them.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from course_utils.hardware.machine import facts as machine_facts
from course_utils.hardware.storage import (
    SlowFileSystem,
    VirtualClock,
    counting_storage,
    slow_storage,
)
from course_utils.loading.events import FORMATS, EventArrays, Events, open_events, read_labels
from course_utils.stories.figures import drawing
from course_utils.stories.formats_compared import shown
from keepfed.files import require_free_space
from keepfed.formatting import duration

PRESETS = ("busy Lustre", "S3")
WARM, S3 = "this disk, warm", "emulated S3"
AMPLIFICATION = "bytes read per byte needed"
NAMES = ("npz", "npy", "hdf5", "parquet", "sqlite", "tar", "root")
VARIANTS = ("npz-deflate", "hdf5-chunked", "hdf5-gzip", "hdf5-misfit", "parquet-zstd")
MOST = 1_000  # events that are written, as more give the same result
PULSE = 16  # bytes per pulse

Batch = list[int]
Draw = list[Batch]


class Pattern(NamedTuple):
    """An access pattern."""

    size: int  # events per batch
    batches: int
    repeats: int  # number of draws, of which the median counts
    marker: str  # patterns differ in shape as well as in colour
    colour: str


# In a terabyte of data, two random events are never in the same unit or page, so each costs as
# much as "one event".
PATTERNS = {
    "in order": Pattern(64, 4, 3, "s", shown.COLOURS[0]),
    "one event": Pattern(1, 1, 7, "o", shown.COLOURS[1]),
}
_NOTE = (
    "“In order” reads 256 neighbouring events, “one event” reads a random one. Times are for an "
    "open file, and the factor compares with the best time of the column. Requests are reads that "
    "reach the storage, with opened files in brackets. Amplification is the number of bytes read "
    "per byte of pulses. Both are counted without a page cache. A mapped npy file reads pages of "
    "4 KiB."
)


@dataclass(frozen=True)
class Cost:
    """The cost of reading some events, as a median over a few draws."""

    seconds: float  # wall time on this disk, emulated plus CPU time on emulated storage
    requests: float  # reads that reached the storage
    opens: float  # opened or looked-up files
    amplification: float  # bytes that the storage delivered per byte of pulses


@dataclass(frozen=True)
class FormatRow:
    """The cost of writing and reading one format."""

    write_s: float  # without waiting until the data are on the disk
    size: int  # bytes of all files
    costs: Mapping[tuple[str, str], Cost]  # by storage and pattern


@dataclass(frozen=True)
class FormatTable:
    """The cost of each format by name, with an HTML view and a figure."""

    rows: Mapping[str, FormatRow]
    events: int
    pulses: int
    machine: str

    @property
    def names(self) -> list[str]:
        """The formats, with the fastest over all storages and patterns first."""

        def slowness(name: str) -> float:
            return float(np.log([self.ratio(name, *at) for at in self.rows[name].costs]).mean())

        return sorted(self.rows, key=slowness)

    @property
    def storages(self) -> list[str]:
        """The storages, this disk first."""
        return list(dict.fromkeys(storage for storage, _ in self.rows["npy"].costs))

    def cost(self, name: str, storage: str, pattern: str) -> Cost:
        """Return the cost of reading a format from a storage with a pattern."""
        return self.rows[name].costs[storage, pattern]

    def ratio(self, name: str, storage: str, pattern: str) -> float:
        """Return the time relative to the best format on the same storage."""
        best = min(row.costs[storage, pattern].seconds for row in self.rows.values())
        return self.cost(name, storage, pattern).seconds / best

    def picture(self) -> Figure:
        """Draw the time of each format relative to the best, and the amplification."""
        names, titles = self.names, (*self.storages, AMPLIFICATION)
        height, tall = range(len(names), 0, -1), 1.6 + 0.3 * len(names)
        with drawing(11.5, tall, columns=4, title=repr(self), sharey=True) as (figure, axes):
            for panel, title in zip(axes, titles, strict=True):
                for how, look in PATTERNS.items():
                    if title == AMPLIFICATION:
                        found = [self.cost(name, S3, how).amplification for name in names]
                    else:
                        found = [self.ratio(name, title, how) for name in names]
                    panel.plot(found, height, look.marker, color=look.colour, label=how)
                panel.set(
                    xscale="log",
                    xlabel="times the best (log)" if title != AMPLIFICATION else "(log)",
                )
                panel.set_title(title, fontsize="medium")
                panel.grid(color="gray", alpha=0.3, linewidth=0.5)
            axes[0].set_yticks(height, [FORMATS[name].title for name in names])
            legend = axes[0].get_legend_handles_labels()
            figure.legend(*legend, loc="outside lower right", ncols=2, frameon=False)
        return figure

    def __repr__(self) -> str:
        size = PULSE * self.pulses / 1e6
        return f"{self.events:,} events, {size:,.1f} MB of pulses · {self.machine}"

    def _repr_html_(self) -> str:
        """Return a table for each storage, with the first one unfolded."""
        kinds = "time", "requests", "amplification"
        head = [
            "format",
            "size",
            "write",
            *(f"{kind}, {how}" for kind in kinds for how in PATTERNS),
        ]
        tables = [
            f"<summary>{escape(storage)}</summary>"
            f"{shown.table(head, self._cells(storage))}</details>"
            for storage in self.storages
        ]
        return shown.page(repr(self), f'<details open="">{"<details>".join(tables)}', _NOTE)

    def _cells(self, storage: str) -> Iterator[list[str]]:
        """Yield 9 cells for each format: name, size, writing, two times and four counts."""
        for name in self.names:
            row = self.rows[name]
            costs = [row.costs[storage, pattern] for pattern in PATTERNS]
            ratios = [self.ratio(name, storage, pattern) for pattern in PATTERNS]
            times = [f"{each:.2g}×" if each < 10 else f"{each:,.0f}×" for each in ratios]
            yield [
                FORMATS[name].title,
                f"{row.size / (PULSE * self.pulses):.2f}×",
                duration(1e9 * row.write_s),
                *(f"{a} {duration(1e9 * b.seconds)}" for a, b in zip(times, costs, strict=True)),
                *(
                    f"{each.requests:,.0f}" + f" (+{each.opens:,.0f})" * (each.opens > 0)
                    for each in costs
                ),
                *(f"{each.amplification:.3g}" for each in costs),
            ]


def compare_formats(
    folder: str | Path, names: Sequence[str] = NAMES, *, most: int = MOST
) -> FormatTable:
    """Write events in some formats, read them with two patterns, and return the costs.

    "In order" reads 256 neighbouring events, "one event" reads a random one. Use at least 1,000
    events, or the two patterns do not differ.

    Args:
        folder: events as make_events writes them.
        names: event formats to compare; "npy" is always included.
        most: maximum number of events, evenly spread over the folder.

    Raises:
        FileNotFoundError: If the folder holds no events.
        CourseError: If there is not enough space for a copy in each format.
    """
    read_labels(folder)  # raises a clear error if there are no events
    events = EventArrays.load(Path(folder))
    events = events.take(np.arange(len(events))[:: -(-len(events) // most)])
    # next to the data, because a temporary folder is often in memory
    data = Path(folder).absolute().parent
    beside = data if os.access(data, os.W_OK) else Path(gettempdir())
    names = [
        "npy",
        *(name for name in names if name != "npy"),
    ]  # npy includes the labels of all formats
    room = len(names) * (2 * events.pulses.nbytes + 8192 * len(events))
    require_free_space(beside, room, otherwise="or compare fewer events with most=500")
    rows = {}
    with TemporaryDirectory(prefix=".formats-", dir=beside, ignore_cleanup_errors=True) as place:
        for name in tqdm(names, unit="format", disable=None):
            rows[name] = FormatRow(
                *write(name, events, Path(place)), Reader(name, Path(place)).costs()
            )
    return FormatTable(rows, len(events), len(events.pulses), machine_facts.stamp())


def write(name: str, events: EventArrays, folder: Path) -> tuple[float, int]:
    """Write format `name` into `folder`, and return the seconds and bytes."""
    entry, start = folder / FORMATS[name].entry, time.perf_counter()
    if name == "npy":
        events.save(folder)
    else:
        FORMATS[name].write(events, entry)
    seconds = time.perf_counter() - start
    files = [entry, *entry.rglob("*")] if entry.is_dir() else [entry]
    return seconds, sum(file.stat().st_size for file in files if file.is_file())


def draws(count: int, pattern: str) -> Iterator[Draw]:
    """Yield a few draws, each a list of batches of indices, without index 0."""
    rng = np.random.default_rng([0, list(PATTERNS).index(pattern)])
    size, batches, repeats = PATTERNS[pattern][:3]
    length = min(size * batches, count - 1)
    for _ in range(repeats):
        chosen = rng.integers(1, count - length + 1) + np.arange(length)
        yield [chosen[first : first + size].tolist() for first in range(0, length, size)]


class Reader:
    """Reads the events of a folder in one format, on all storages and with all patterns."""

    def __init__(self, name: str, folder: Path):
        """Read format `name` in `folder`, which must contain npy files too."""
        self._name, self._folder = name, folder.absolute()
        self._lengths: NDArray[np.int64] = np.diff(np.load(folder / "npy/offsets.npy"))

    def costs(self) -> dict[tuple[str, str], Cost]:
        """Return the cost by storage and pattern, for this disk and emulated storages."""
        found = {}
        counting = counting_storage(self._folder)
        emulated = [slow_storage(self._folder, preset) for preset in PRESETS]
        for pattern in PATTERNS:
            chosen = list(draws(len(self._lengths), pattern))
            few = chosen if pattern == "one event" else chosen[:1]  # emulated times hardly vary
            dataset = self._opened()
            _seconds(dataset, chosen[-1])  # warm up: imports and readahead
            seconds = median(_seconds(dataset, draw) for draw in chosen)
            found[WARM, pattern] = replace(self._on(counting, few), seconds=seconds)
            for fs in emulated:
                found[f"emulated {fs.preset.name}", pattern] = self._on(fs, few)
        return found

    def _opened(self, fs: SlowFileSystem | None = None) -> Events:
        dataset = open_events(self._folder, self._name, fs=fs)
        dataset[0]
        return dataset

    def _on(self, fs: SlowFileSystem, chosen: Iterable[Draw]) -> Cost:
        clock, dataset = VirtualClock(fs), self._opened(fs)
        found, read, wanted = [], 0, 0
        for draw in chosen:
            fs.drop_caches()
            fs.reset_counters()
            taken, counters = _seconds(dataset, draw, clock), fs.counters()
            found.append((taken, counters.requests, counters.opens + counters.lookups))
            read += counters.bytes_read
            wanted += PULSE * sum(int(self._lengths[batch].sum()) for batch in draw)
        seconds, requests, opens = map(median, zip(*found, strict=True))
        return Cost(seconds, requests, opens, read / max(1, wanted))


def _seconds(dataset: Events, draw: Draw, clock: Callable[[], int] = time.perf_counter_ns) -> float:
    start = clock()
    for batch in draw:
        dataset.__getitems__(batch)
    return (clock() - start) / 1e9
