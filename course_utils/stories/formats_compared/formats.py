"""Measure the file formats on this disk and on emulated storage.

    formats = compare_formats(cu.data_path("events"))  # or with names=VARIANTS
    formats  # a table of the counts
    formats.picture()

The files are written into a temporary folder. The time of emulated storage is computed without
waiting (see hardware.storage.VirtualClock). All figures are for a file that is already open,
because a worker opens it only once. Emulated storage has no page cache, and this disk is warm. For
files with one event each, the figures include opening them.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, gettempdir
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
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
from keepfed.files import require_free_space

WARM, LUSTRE, S3 = STORAGES = "this disk, warm", "emulated busy Lustre", "emulated S3"
AMPLIFICATION = "bytes read per byte needed"
NAMES = ("npz", "npy", "hdf5", "parquet", "sqlite", "tar", "root")
VARIANTS = ("npz-deflate", "hdf5-chunked", "hdf5-gzip", "hdf5-misfit", "parquet-zstd")
MOST = 1_000  # events that are written, as more give the same result
PULSE = 16  # bytes per pulse

Draw = list[list[int]]  # batches of event indices


class Pattern(NamedTuple):
    """An access pattern."""

    size: int  # events per batch
    batches: int
    repeats: int  # number of draws, of which the median counts
    marker: str  # patterns differ in shape as well as in color


# In a terabyte of data, two random events are never in the same unit or page, so each costs as
# much as "one event".
PATTERNS = {"in order": Pattern(64, 4, 3, "s"), "one event": Pattern(1, 1, 7, "o")}


@dataclass(frozen=True)
class Cost:
    """The cost of reading some events, as a median over a few draws."""

    seconds: float  # wall time on this disk, emulated plus CPU time on emulated storage
    requests: float  # reads that reached the storage
    opens: float  # opened or looked-up files
    amplification: float  # bytes that the storage delivered per byte of pulses


@dataclass(frozen=True)
class FormatTable:
    """The size and the costs of each format, with a table and a figure."""

    sizes: Mapping[str, float]  # by format, relative to the pulses in memory
    costs: Mapping[tuple[str, str, str], Cost]  # by format, storage and pattern
    about: str  # the data and the machine

    def cost(self, name: str, storage: str, pattern: str) -> Cost:
        """Return the cost of reading a format from a storage with a pattern."""
        return self.costs[name, storage, pattern]

    def ratio(self, name: str, storage: str, pattern: str) -> float:
        """Return the time relative to the best format on the same storage."""
        best = min(self.cost(other, storage, pattern).seconds for other in self.sizes)
        return self.cost(name, storage, pattern).seconds / best

    def picture(self) -> Figure:
        """Draw the time of each format relative to the best, and the amplification.

        The format that is the fastest over all storages and patterns is on top.
        """
        everywhere = list(product(STORAGES, PATTERNS))
        names = sorted(
            self.sizes, key=lambda name: prod(self.ratio(name, *at) for at in everywhere)
        )
        height, tall = range(len(names), 0, -1), 1.6 + 0.3 * len(names)
        with drawing(11.5, tall, columns=4, title=self.about, sharey=True) as (figure, panels):
            for panel, title in zip(panels, (*STORAGES, AMPLIFICATION), strict=True):
                for how, pattern in PATTERNS.items():
                    if title == AMPLIFICATION:
                        values = [self.cost(name, S3, how).amplification for name in names]
                    else:
                        values = [self.ratio(name, title, how) for name in names]
                    panel.plot(values, height, pattern.marker, label=how)
                label = "(log)" if title == AMPLIFICATION else "times the best (log)"
                panel.set(xscale="log", xlabel=label)
                panel.set_title(title, fontsize="medium")
                panel.grid(color="gray", alpha=0.3, linewidth=0.5)
            panels[0].set_yticks(height, [FORMATS[name].title for name in names])
            entries = panels[0].get_legend_handles_labels()
            figure.legend(*entries, loc="outside lower right", ncols=2, frameon=False)
        return figure

    def _repr_markdown_(self) -> str:
        """Return the counts of each format, which are the same on every machine."""
        counts = "requests (+ opened files)", AMPLIFICATION
        head = "format", "size", *(f"{what}, {how}" for what in counts for how in PATTERNS)
        rows = [head, ["---"] * len(head)]
        for name, size in self.sizes.items():
            costs = [self.cost(name, S3, how) for how in PATTERNS]
            requests = [f"{cost.requests:,.0f} (+ {cost.opens:,.0f})" for cost in costs]
            read = [f"{cost.amplification:.3g}" for cost in costs]
            rows.append([FORMATS[name].title, f"{size:.2f}×", *requests, *read])
        return f"{self.about}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def compare_formats(
    folder: str | Path, names: Sequence[str] = NAMES, *, most: int = MOST
) -> FormatTable:
    """Write events in some formats, read them with two patterns, and return the costs.

    "In order" reads 256 neighboring events, "one event" reads a random one. Use at least 1,000
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
    # npy is the first, because its labels serve all formats
    names = ["npy", *(name for name in names if name != "npy")]
    room = len(names) * (2 * events.pulses.nbytes + 8192 * len(events))
    require_free_space(beside, room, otherwise="or compare fewer events with most=500")
    sizes, costs = dict[str, float](), dict[tuple[str, str, str], Cost]()
    with TemporaryDirectory(prefix=".formats-", dir=beside, ignore_cleanup_errors=True) as place:
        for name in tqdm(names, unit="format", disable=None):
            sizes[name] = _write(name, events, Path(place)) / events.pulses.nbytes
            costs |= _costs(name, Path(place))
    about = f"{len(events):,} events, {events.pulses.nbytes / 1e6:,.1f} MB of pulses"
    return FormatTable(sizes, costs, f"{about} · {machine_facts.stamp()}")


def _write(name: str, events: EventArrays, folder: Path) -> int:
    """Write format `name` into `folder`, and return the bytes of its files."""
    entry = folder / FORMATS[name].entry
    FORMATS[name].write(events, entry)
    files = [entry, *entry.rglob("*")] if entry.is_dir() else [entry]
    return sum(file.stat().st_size for file in files if file.is_file())


def draws(count: int, pattern: str) -> Iterator[Draw]:
    """Yield a few draws, each a list of batches of indices, without index 0."""
    rng = np.random.default_rng([0, list(PATTERNS).index(pattern)])
    size, batches, repeats, _ = PATTERNS[pattern]
    length = min(size * batches, count - 1)
    for _ in range(repeats):
        chosen = rng.integers(1, count - length + 1) + np.arange(length)
        yield [chosen[first : first + size].tolist() for first in range(0, length, size)]


def _costs(name: str, folder: Path) -> dict[tuple[str, str, str], Cost]:
    """Return the costs of a format in `folder`, which must contain npy files too."""
    costs = {}
    lengths = np.diff(np.load(folder / "npy/offsets.npy"))
    for pattern in PATTERNS:
        chosen = list(draws(len(lengths), pattern))
        dataset = _opened(name, folder)
        _seconds(dataset, chosen[-1])  # warm up: imports and readahead
        warm_s = median(_seconds(dataset, draw) for draw in chosen)
        few = chosen if pattern == "one event" else chosen[:1]  # emulated times hardly vary
        needed = [PULSE * sum(int(lengths[batch].sum()) for batch in draw) for draw in few]
        counted = _cost(name, folder, counting_storage(folder), few, sum(needed))
        costs[name, WARM, pattern] = replace(counted, seconds=warm_s)
        for storage in (LUSTRE, S3):
            emulated = slow_storage(folder, storage.removeprefix("emulated "))
            costs[name, storage, pattern] = _cost(name, folder, emulated, few, sum(needed))
    return costs


def _cost(name: str, folder: Path, fs: SlowFileSystem, chosen: list[Draw], needed: int) -> Cost:
    """Return the cost of some draws from a storage, which need `needed` bytes together."""
    clock, dataset = VirtualClock(fs), _opened(name, folder, fs)
    measured, bytes_read = [], 0
    for draw in chosen:
        fs.drop_caches()
        fs.reset_counters()
        seconds, counters = _seconds(dataset, draw, clock), fs.counters()
        measured.append((seconds, counters.requests, counters.opens + counters.lookups))
        bytes_read += counters.bytes_read
    seconds, requests, opens = map(median, zip(*measured, strict=True))
    return Cost(seconds, requests, opens, bytes_read / max(1, needed))


def _opened(name: str, folder: Path, fs: SlowFileSystem | None = None) -> Events:
    dataset = open_events(folder, name, fs=fs)
    dataset[0]
    return dataset


def _seconds(dataset: Events, draw: Draw, clock: Callable[[], int] = time.perf_counter_ns) -> float:
    start = clock()
    for batch in draw:
        dataset.__getitems__(batch)
    return (clock() - start) / 1e9
