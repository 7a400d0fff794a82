"""Measure how fast a peer loads samples, and keep the books of what it gives."""

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

from course_stories.peers.ledger import Ledger, ledger
from course_stories.peers.peer import Epoch, Peer, numbered

MOST_EPOCHS, ENOUGH_S = 15, 0.3


@dataclass(frozen=True)
class Task:
    """What all peers load: so many samples of so many rows, and a part of them one by one."""

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
class Measured:
    """What some epochs of a peer took, and what one of them gave."""

    name: str
    package: str  # with its version; empty: the course's own
    seconds: float  # of an epoch: here the fastest, in a recording the median
    cpu_s: float  # that the cores worked in it, all together
    first_s: float  # until the very first batch
    books: Ledger
    uses: str = ""  # how many threads or processes
    pixels: float | None = None  # of images: mean distance from those of another, of 255

    @property
    def rate(self) -> float:
        """Return samples per second."""
        return self.books.served / self.seconds

    @property
    def cores(self) -> float:
        """Return how many cores were busy, on average."""
        return self.cpu_s / self.seconds

    def row(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Measured:
        """Read what `row` made."""
        return cls(**{**row, "books": Ledger(**row["books"])})


def measure(name: str, peer: Peer, task: Task) -> Measured:
    """Let a peer write its files, and load some epochs."""
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
    return Measured(name, package, seconds, cpu_s, first_s, books, peer.uses)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch share out copies among so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rounds() -> Iterator[int]:
    """Count epochs until there are enough."""
    end = time.perf_counter() + ENOUGH_S
    for number in range(1, MOST_EPOCHS + 1):
        yield number
        if number >= 2 and time.perf_counter() > end:
            return


def _timed(epoch: Epoch, number: int) -> tuple[float, float]:
    """Return the seconds of an epoch, by the clock and of the cores."""
    start, cpu = time.perf_counter(), time.process_time()
    for _ in epoch(number):
        pass
    return time.perf_counter() - start, time.process_time() - cpu
