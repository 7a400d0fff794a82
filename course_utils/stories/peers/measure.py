"""Measure how fast a loader serves samples, and check what it serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from course_utils.stories.peers.ledger import Ledger, ledger
from course_utils.stories.peers.peer import Epoch, Peer, numbered

MOST_EPOCHS, ENOUGH_S = 15, 0.3


@dataclass(frozen=True)
class Task:
    """The size of the data set, and of the part that slow loaders read."""

    count: int
    one_by_one: int
    rows: int
    batch_size: int

    @property
    def sample_bytes(self) -> int:
        """Return the bytes of a sample."""
        return self.rows * 4 * 4


SMALL = Task(count=16_384, one_by_one=2_048, rows=128, batch_size=256)  # samples of 2 KiB
LARGE = Task(count=384, one_by_one=384, rows=32_768, batch_size=8)  # samples of 512 KiB
TASKS = {"small": SMALL, "large": LARGE}


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


def measure(name: str, peer: Peer, task: Task) -> Measurement:
    """Write the files of a loader, and measure some epochs."""
    count = task.one_by_one if peer.one_by_one else task.count
    with TemporaryDirectory(ignore_cleanup_errors=True) as place, threads(1):
        folder = Path(place)
        peer.write(folder, numbered(count, task.rows))
        start = time.perf_counter()
        epoch = peer.load(folder, task.batch_size)
        first = epoch(0)
        batches = [next(first)]
        first_s = time.perf_counter() - start
        books = ledger([*batches, *first], count)
        seconds, cpu_s = min(_timed(epoch, number) for number in _rounds())
    package = f"{peer.needs.name} {version(peer.needs.name)}" if peer.needs else ""
    return Measurement(name, package, seconds, cpu_s, first_s, books, peer.uses)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rounds() -> Iterator[int]:
    """Yield epoch numbers until enough epochs were measured."""
    end = time.perf_counter() + ENOUGH_S
    for number in range(1, MOST_EPOCHS + 1):
        yield number
        if number >= 2 and time.perf_counter() > end:
            return


def _timed(epoch: Epoch, number: int) -> tuple[float, float]:
    """Return the wall time and the CPU time of an epoch, in seconds."""
    start, cpu = time.perf_counter(), time.process_time()
    for _ in epoch(number):
        pass
    return time.perf_counter() - start, time.process_time() - cpu
