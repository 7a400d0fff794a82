"""Measure what one file format costs: to write, to keep, and to read in three ways.

Every figure is that of a file that is open already, since a worker opens it once, and of storage
that has forgotten it, except where it says "warm". What is counted includes the opening of files
that hold one event each.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from course_utils.hardware.machine import can_forget, drop_cache
from course_utils.hardware.storage import (
    SlowFileSystem,
    VirtualClock,
    counting_storage,
    slow_storage,
)
from course_utils.loading.events import FORMATS, EventArrays, Events, open_events

WARM, COLD = "this disk, warm", "this disk, cold"
BATCH = 64
_BATCHES = {"sequential": 4, "random": 1}
PATTERNS = ("sequential", "random", "one event")
_REPEATS = {"sequential": 3, "random": 3, "one event": 7}

Batch = list[int]
Draw = list[Batch]


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


def write(name: str, events: EventArrays, folder: Path) -> tuple[float, int]:
    """Write a format of `events` into `folder` and return the seconds and the bytes.

    Args:
        name: a key of FORMATS; "npy" writes the labels too, so it goes first.
        events: what to write.
        folder: exists.
    """
    entry, start = folder / FORMATS[name].entry, time.perf_counter()
    if name == "npy":
        events.save(folder)
    else:
        FORMATS[name].write(events, entry)
    seconds = time.perf_counter() - start
    files = [entry, *entry.rglob("*")] if entry.is_dir() else [entry]
    return seconds, sum(file.stat().st_size for file in files if file.is_file())


def draws(count: int, pattern: str, seed: int = 0) -> list[Draw]:
    """Return which events to read: a few draws, each a list of batches; event 0 opens the file."""
    rng = np.random.default_rng([seed, PATTERNS.index(pattern)])
    return [_draw(count, pattern, rng) for _ in range(_REPEATS[pattern])]


def _draw(count: int, pattern: str, rng: np.random.Generator) -> Draw:
    if pattern == "one event":
        return [[int(rng.integers(1, count))]]
    length = min(BATCH * _BATCHES[pattern], count - 1)
    if pattern == "random":
        chosen = rng.choice(np.arange(1, count), length, replace=False)
    else:
        chosen = rng.integers(1, count - length + 1) + np.arange(length)
    return [chosen[first : first + BATCH].tolist() for first in range(0, length, BATCH)]


class Storages:
    """This disk, one that only counts, and emulated ones, all over the same folder."""

    def __init__(self, folder: Path, presets: Sequence[str]):
        """Emulate `presets` over `folder`, which exists."""
        self.folder = folder.absolute()
        self.counting = counting_storage(self.folder)
        self.emulated = [slow_storage(self.folder, preset) for preset in presets]


class Reader:
    """One format of the events in a folder, to be read in all ways."""

    def __init__(self, name: str, storages: Storages):
        """Take format `name`; npy has to be there too."""
        self._name, self._storages = name, storages
        self._lengths: NDArray[np.int64] = np.diff(np.load(storages.folder / "npy/offsets.npy"))

    def costs(self) -> dict[tuple[str, str], Cost]:
        """Return the cost by storage and pattern."""
        found = {}
        for pattern in PATTERNS:
            chosen = draws(len(self._lengths), pattern)
            # what is emulated hardly scatters; a cold draw of 256 files takes a second to prepare
            few = chosen if pattern == "one event" else chosen[:1]
            counted = self._on(self._storages.counting, few)
            for storage, seconds in self._on_disk(chosen, few).items():
                found[storage, pattern] = replace(counted, seconds=seconds)
            for fs in self._storages.emulated:
                found[f"emulated {fs.preset.name}", pattern] = self._on(fs, few)
        return found

    def _opened(self, fs: SlowFileSystem | None = None) -> Events:
        dataset = open_events(self._storages.folder, self._name, fs=fs)
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
            wanted += 16 * sum(int(self._lengths[batch].sum()) for batch in draw)
        return Cost(median(seconds), median(requests), median(opens), read / max(1, wanted))


def _read_all(dataset: Events, draw: Draw) -> None:
    for batch in draw:
        dataset.__getitems__(batch)


def _seconds(dataset: Events, draw: Draw) -> float:
    start = time.perf_counter()
    _read_all(dataset, draw)
    return time.perf_counter() - start
