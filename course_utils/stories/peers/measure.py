"""Measure how fast a loader serves samples, and check what it serves."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from course_utils.stories.peers.tables import Table

MOST_EPOCHS, ENOUGH_S = 15, 0.3


@dataclass(frozen=True)
class Ledger:
    """Counts of the events that one epoch of a loader served."""

    n_events: int  # events on disk
    served: int
    distinct: int
    neighbors: float  # pairs in a batch that are adjacent on disk, relative to chance

    @property
    def complete(self) -> bool:
        """Whether every event was served exactly once."""
        return self.served == self.distinct == self.n_events


def ledger(batches: Sequence[torch.Tensor], n_events: int) -> Ledger:
    """Return the counts of an epoch.

    Args:
        batches: positions on disk of the events of each batch, shape (batch,).
        n_events: number of events on disk.
    """
    met, by_chance = 0, 0.0
    for batch in batches:
        places = batch.long().sort().values
        met += int((places.diff() == 1).sum())
        by_chance += len(places) * (len(places) - 1) / n_events
    served = torch.cat([batch.long() for batch in batches])
    return Ledger(
        n_events=n_events,
        served=len(served),
        distinct=int(torch.bincount(served, minlength=n_events).count_nonzero()),
        neighbors=met / by_chance if by_chance else 0.0,
    )


@dataclass(frozen=True)
class Measurement:
    """The time of an epoch of a loader, and the counts of the served samples."""

    name: str
    package: str  # package and version, or "" for the course's own loaders
    seconds: float  # time of an epoch: the fastest here, the median in a recording
    cpu_s: float  # CPU time of the epoch on all cores
    first_s: float  # time until the very first batch
    books: Ledger
    uses: str = ""  # number of threads or processes
    pixels: float | None = None  # for images: mean difference to a reference, of 255

    @property
    def rate(self) -> float:
        """Return samples per second."""
        return self.books.served / self.seconds

    @property
    def cores(self) -> float:
        """Return the mean number of busy cores."""
        return self.cpu_s / self.seconds

    def row(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Measurement:
        """Create an object from the result of `row`."""
        return cls(**{**row, "books": Ledger(**row["books"])})


class OpenLoader:
    """A loader with its files, which is measured epoch by epoch."""

    def __init__(self, name: str, table: Table, folder: Path):
        """Write the files if they do not exist, open the loader, and take the first batch."""
        self.name, self.peer = name, table.peers[name]
        self.count = table.samples(self.peer)
        files = table.written(self.peer, folder)
        start = time.perf_counter()
        self.epoch = self.peer.load(files, table.batch_size)
        self.begun = self.epoch(0)
        self.batches = [next(self.begun)]
        self.first_s = time.perf_counter() - start
        self.pixels = None
        if self.peer.pixels:
            with tempfile.TemporaryDirectory() as other:
                self.pixels = self.peer.pixels(Path(other))

    def run(self, number: int) -> Measurement:
        """Run an epoch; number 0 is the one that has already started."""
        batches, epoch = ([], self.epoch(number)) if number else (self.batches, self.begun)
        cpu_s, start = _cpu_seconds(), time.perf_counter()
        batches.extend(epoch)
        seconds = time.perf_counter() - start
        needs = self.peer.needs
        return Measurement(
            self.name,
            f"{needs.name} {version(needs.name)}" if needs else "",
            seconds,
            _cpu_seconds() - cpu_s,
            self.first_s,
            ledger(batches, self.count),
            self.peer.uses,
            self.pixels,
        )


def measure(name: str, table: Table) -> Measurement:
    """Write the files of a loader, and measure some epochs in this process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, threads(1):
        return fastest(OpenLoader(name, table, Path(folder)).run)


def fastest(run: Callable[[int], Measurement]) -> Measurement:
    """Run epochs until enough were measured, and return the fastest one after the first."""
    run(0)
    end = time.perf_counter() + ENOUGH_S
    epochs = [run(1)]
    while len(epochs) < 2 or (len(epochs) < MOST_EPOCHS and time.perf_counter() < end):
        epochs.append(run(len(epochs) + 1))
    return min(epochs, key=lambda epoch: (epoch.books.complete, epoch.seconds))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of all its children, running or ended."""
    own = psutil.Process()
    total = time.process_time() + sum(own.cpu_times()[2:4])  # children that have ended
    for process in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
