"""Figures of this process: bytes read, private memory, thread pools, and time without a core."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from keepfed.errors import required
from keepfed.measure.records import MAIN, UNKNOWN

MEMORY_EVERY_S = 0.2  # minimum seconds between two measurements of the memory
MEMORY_SHARE = 0.05  # maximum share of a worker's time spent measuring its own memory
# Reading these counters takes about 40 us, because the system adds up the bytes of all threads.
READ_EVERY_S, READ_SELDOM_S = 0.005, 0.05


class ProcessFigures:
    """A function that returns the last five fields of a `Fetch` for the current process."""

    def __init__(self, *, memory: bool = True) -> None:
        """Create it. Without `memory`, it omits memory and pools, and reads the rest less often."""
        self.memory = memory
        self._every_s = READ_EVERY_S if memory else READ_SELDOM_S
        self._next_memory_s = self._next_read_s = 0.0  # times of the next measurements
        self._read = 0, 0, 0
        self._pool_threads = self._count = 0

    def __call__(self, worker: int) -> tuple[int, int, int, int, int]:
        """Return the figures of this process, with 0 for memory between two measurements."""
        now_s = time.perf_counter()
        if self.memory and self._count in (0, 2):  # some libraries load with the first fetches
            self._pool_threads = pool_threads()
        self._count += 1
        if now_s >= self._next_read_s:
            self._read, self._next_read_s = bytes_read(), now_s + self._every_s
        if not self.memory:
            return *self._read, UNKNOWN, UNKNOWN
        own = self._own_bytes(now_s) if worker != MAIN else 0
        return *self._read, own, self._pool_threads

    def _own_bytes(self, now_s: float) -> int:
        if now_s < self._next_memory_s:
            return 0
        before = time.thread_time()
        own = own_bytes()
        cost_s = time.thread_time() - before
        self._next_memory_s = now_s + max(MEMORY_EVERY_S, cost_s / MEMORY_SHARE)
        return own


# These functions query the operating system, and return 0 if it does not provide the figure.


def pool_threads() -> int:
    """Return the size of the largest thread pool of a numerical library in this process."""
    pools = required("threadpoolctl").threadpool_info()
    return max((pool["num_threads"] for pool in pools), default=1)


def bytes_read() -> tuple[int, int, int]:
    """Return (bytes read by this process, bytes of them from a disk, number of read calls)."""
    try:
        with open("/proc/self/io", "rb") as file:
            figures = dict(line.split(b": ") for line in file.read().splitlines())
        return tuple(int(figures[name]) for name in (b"rchar", b"read_bytes", b"syscr"))  # type: ignore[return-value]
    except (OSError, KeyError, ValueError):
        return 0, 0, 0


def own_bytes() -> int:
    """Return the private memory of this process, on Linux without unmodified pages of files."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            lines = (line.split() for line in file)
            return next(int(words[1]) << 10 for words in lines if words[0] == b"Private_Dirty:")
    except (OSError, StopIteration):
        pass
    psutil = required("psutil")
    try:
        return int(psutil.Process().memory_full_info().uss)
    except (psutil.Error, OSError):
        return 0


def delay_ns() -> int:
    """Return the nanoseconds in which this thread was ready to run but had no core.

    Only Linux counts this time. On other systems, the result is 0.
    """
    try:
        thread = threading.get_native_id()
        if _own.thread != thread:  # a forked process inherits the file of its parent
            _own.file, _own.thread = _File("/proc/thread-self/schedstat"), thread
        return int(_own.file.read().split()[1])
    except (OSError, IndexError):
        return 0


def has_delay() -> bool:
    """Return whether this system counts the delay."""
    return os.path.exists("/proc/thread-self/schedstat")


class _File:
    """A file that stays open, because opening it takes ten times as long as reading it."""

    def __init__(self, path: str):
        self.handle = -1
        self.handle = os.open(path, os.O_RDONLY)

    def read(self) -> bytes:
        return os.pread(self.handle, 100, 0)

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.handle)


class _Own(threading.local):
    """The file of each thread."""

    thread = 0
    file: _File


_own = _Own()


def is_lock_contended(processes: Sequence[int]) -> bool:
    """Return whether at least half of the processes, but not all, wait for a lock now.

    Then one of the other processes probably holds it. If all of them wait, they wait for their own
    threads. On systems other than Linux, the result is False.
    """
    waiting = sum(_waits_for_a_lock(pid) for pid in processes)
    return len(processes) / 2 <= waiting < len(processes)


def _waits_for_a_lock(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/wchan").read_text().startswith(("futex", "locks_lock", "flock"))
    except OSError:
        return False
