"""Note in every worker what each fetch cost it: time, processor, and waiting for one.

The figures go to memory that the workers share with the main process, so that they are there also
when a worker has ended. Time that a fetch neither computed nor waited for a core, it waited for
something else: storage, as a rule.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from multiprocessing.sharedctypes import RawArray
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import get_worker_info

from course_utils.measure.hook import Listener, delay_s

ROWS = 2048  # fetches that are remembered of each worker
MEMORY_EVERY_S = 0.2
MEMORY_SHARE = 0.05  # of its time at most may a worker spend on weighing itself
READ_EVERY_S = 0.005  # the system adds up the bytes of all threads, which takes some 40 us


class Reading(NamedTuple):
    """The clocks of one thread and its process, in seconds."""

    wall: float
    thread: float  # processor time of the thread that fetches
    process: float  # and of all threads
    delay: float  # time for which that thread was ready and got no core


class Fetch(NamedTuple):
    """What one fetch of one batch cost, in seconds; `collate` is its last part."""

    worker: float
    end: float
    wall: float
    cpu: float  # of the fetching thread
    process_cpu: float  # of the whole process: more than `cpu` if there are thread pools
    delay: float
    collate: float
    total_cpu: float  # of the process since it began
    asked_bytes: float  # that the process had read, from whatever file, up to 5 ms before
    disk_bytes: float  # and that had to come from a disk
    unique_bytes: float  # memory that only this process has, 0 if not weighed now
    pool_threads: float  # most threads that a pool of a numerical library may use


def read_clocks() -> Reading:
    """Read the clocks now; a system that does not tell how long threads wait tells 0."""
    return Reading(time.perf_counter(), time.thread_time(), time.process_time(), delay_s())


class Gauges(Listener):
    """Notes the fetches of some workers in memory that they share with this process."""

    def __init__(self, workers: int):
        """Make room for `workers`; one without any is the main process itself."""
        # Not tensors: torch fills and shares a large one with several OpenMP threads, and a forked
        # worker that then uses several threads itself hangs forever.
        self._shared_rows = RawArray("d", max(workers, 1) * ROWS * len(Fetch._fields))
        self._shared_counts = RawArray("q", max(workers, 1))
        self._began, self._made_s = Reading(0.0, 0.0, 0.0, 0.0), 0.0
        self._weighed_s = self._read_s = 0.0  # when memory is weighed, and bytes are read, again
        self._read = 0, 0
        self._pool_threads = 0

    @property
    def rows(self) -> np.ndarray:
        """The fetches, shared with all workers. Shape (workers, ROWS, fields of `Fetch`)."""
        flat = np.frombuffer(self._shared_rows)
        return flat.reshape(len(self._shared_counts), ROWS, len(Fetch._fields))

    @property
    def counts(self) -> np.ndarray:
        """The number of fetches of each worker, shared with all workers. Shape (workers,)."""
        return np.frombuffer(self._shared_counts, dtype=np.int64)

    def fetch_begins(self, index: Any) -> None:
        """Read the clocks."""
        self._began = read_clocks()

    def samples_made(self) -> None:
        """Note when."""
        self._made_s = time.perf_counter()

    def batch_made(self, batch: Any) -> Any:
        """Note what the fetch cost that ends so."""
        ended, info = read_clocks(), get_worker_info()
        worker = info.id if info else 0
        if not self._pool_threads or self.counts[worker] == 2:  # libraries load lazily
            self._pool_threads = pool_threads()
        if ended.wall >= self._read_s:
            self._read, self._read_s = bytes_read(), ended.wall + READ_EVERY_S
        asked, from_disk = self._read
        self.note(
            Fetch(
                worker=worker,
                end=ended.wall,
                wall=ended.wall - self._began.wall,
                cpu=ended.thread - self._began.thread,
                process_cpu=ended.process - self._began.process,
                delay=ended.delay - self._began.delay,
                collate=ended.wall - self._made_s,
                total_cpu=ended.process,
                asked_bytes=asked,
                disk_bytes=from_disk,
                unique_bytes=self._weigh() if info else 0,
                pool_threads=self._pool_threads,
            )
        )
        return batch

    def _weigh(self) -> int:
        """Return the memory that only this process has, or 0 if it was weighed a moment ago."""
        now = time.perf_counter()
        if now < self._weighed_s:
            return 0
        before = time.thread_time()
        own = own_bytes()
        cost = time.thread_time() - before
        self._weighed_s = now + max(MEMORY_EVERY_S, cost / MEMORY_SHARE)
        return own

    def note(self, fetch: Fetch) -> None:
        """Enter a fetch; the oldest are forgotten."""
        worker, counts = int(fetch.worker), self.counts
        self.rows[worker, counts[worker] % ROWS] = fetch
        counts[worker] += 1

    def fetches(self) -> list[Fetch]:
        """Return all that is remembered, in the order in which they ended."""
        found = [
            Fetch(*row)
            for rows, count in zip(self.rows, self.counts.tolist(), strict=True)
            for row in rows[: min(count, ROWS)].tolist()
        ]
        return sorted(found, key=lambda fetch: fetch.end)


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
