"""Keep what each fetch of some workers cost, in memory that they share with the main process.

So the figures are there also when a worker has ended, and of batches that nobody took.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.measure.hook import Sink
from course_utils.measure.records import MAIN, Fetch, Row

ROWS = 2048  # fetches that are remembered of each worker
WEIGHED_EVERY_S = 0.2
WEIGHING_SHARE = 0.05  # of its time at most may a worker spend on weighing its memory
READ_EVERY_S = 0.005  # the system adds up the bytes of all threads, which takes some 40 us


class FetchRing(Sink):
    """Remembers the last fetches of each worker."""

    def __init__(self, workers: int):
        """Make room for `workers`; one without any is the main process itself."""
        # Not tensors: torch fills and shares a large one with several OpenMP threads, and a forked
        # worker that then uses several threads itself hangs forever.
        self._shared_rows = RawArray("q", max(workers, 1) * ROWS * len(Fetch._fields))
        self._shared_counts = RawArray("q", max(workers, 1))

    @property
    def rows(self) -> NDArray[np.int64]:
        """The fetches, shared with all workers. Shape (workers, ROWS, fields of `Fetch`)."""
        flat = np.frombuffer(self._shared_rows, dtype=np.int64)
        return flat.reshape(len(self._shared_counts), ROWS, len(Fetch._fields))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of fetches of each worker, shared with all workers. Shape (workers,)."""
        return np.frombuffer(self._shared_counts, dtype=np.int64)

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Keep a fetch; the oldest are forgotten."""
        worker, counts = max(fetch.worker, 0), self.counts
        self.rows[worker, counts[worker] % ROWS] = fetch
        counts[worker] += 1
        return batch

    def fetches(self) -> list[Fetch]:
        """Return all that is remembered, in the order in which they ended."""
        found = [
            Fetch(*row)
            for rows, count in zip(self.rows, self.counts.tolist(), strict=True)
            for row in rows[: min(count, ROWS)].tolist()
        ]
        return sorted(found, key=lambda fetch: fetch.ended_ns)


class ProcessFigures:
    """Tells the last four figures of a `Fetch`: bytes read, own memory, threads of pools."""

    def __init__(self) -> None:
        self._weighed_s = self._read_s = 0.0  # when memory is weighed, and bytes are read, again
        self._read = 0, 0
        self._pool_threads = self._count = 0

    def __call__(self, worker: int) -> tuple[int, int, int, int]:
        """Return the figures of this process; 0 for memory that was weighed a moment ago."""
        now_s = time.perf_counter()
        if self._count in (0, 2):  # libraries load lazily
            self._pool_threads = pool_threads()
        self._count += 1
        if now_s >= self._read_s:
            self._read, self._read_s = bytes_read(), now_s + READ_EVERY_S
        return *self._read, self._weigh(now_s) if worker != MAIN else 0, self._pool_threads

    def _weigh(self, now_s: float) -> int:
        if now_s < self._weighed_s:
            return 0
        before = time.thread_time()
        own = own_bytes()
        cost_s = time.thread_time() - before
        self._weighed_s = now_s + max(WEIGHED_EVERY_S, cost_s / WEIGHING_SHARE)
        return own


# What the operating system tells; where it does not tell, the answer is nothing.


def pool_threads() -> int:
    """Return the most threads that a pool of a numerical library may use in this process."""
    from threadpoolctl import threadpool_info

    return max((pool["num_threads"] for pool in threadpool_info()), default=1)


def children_s() -> float:
    """Return the processor seconds of all processes that this one has started, dead ones too."""
    import psutil

    times = os.times()
    total = times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            spent = child.cpu_times()
            total += spent.user + spent.system
    return total


def bytes_read() -> tuple[int, int]:
    """Return the bytes that this process has read, and those of them that came from a disk."""
    try:
        with open("/proc/self/io", "rb") as file:
            figures = dict(line.split(b": ") for line in file.read().splitlines())
        return int(figures[b"rchar"]), int(figures[b"read_bytes"])
    except (OSError, KeyError, ValueError):
        return 0, 0


def own_bytes() -> int:
    """Return the memory of this process alone; on Linux without what a file can give again."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            lines = (line.split() for line in file)
            return next(int(words[1]) << 10 for words in lines if words[0] == b"Private_Dirty:")
    except (OSError, StopIteration):
        pass
    import psutil

    try:
        return int(psutil.Process().memory_full_info().uss)
    except (psutil.Error, OSError):
        return 0
