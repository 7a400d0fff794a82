"""What a process that fetches has read, and the memory that it has for itself."""

from __future__ import annotations

import time

from keepfed.measure.records import MAIN, UNKNOWN

WEIGHED_EVERY_S = 0.2
WEIGHING_SHARE = 0.05  # of its time at most may a worker spend on weighing its memory
# The system adds up the bytes of all threads, which takes some 40 us.
READ_EVERY_S, READ_SELDOM_S = 0.005, 0.05


class ProcessFigures:
    """Tells the last five figures of a `Fetch`: what was read, own memory, threads of pools."""

    def __init__(self, *, weigh: bool = True) -> None:
        """Begin; without `weigh` nothing is told of memory and pools, and the rest seldom."""
        self._weighs = weigh
        self._every_s = READ_EVERY_S if weigh else READ_SELDOM_S
        self._weighed_s = self._read_s = 0.0  # when memory is weighed, and bytes are read, again
        self._read = 0, 0, 0
        self._pool_threads = self._count = 0

    def __call__(self, worker: int) -> tuple[int, int, int, int, int]:
        """Return the figures of this process; 0 for memory that was weighed a moment ago."""
        now_s = time.perf_counter()
        if self._weighs and self._count in (0, 2):  # libraries load lazily
            self._pool_threads = pool_threads()
        self._count += 1
        if now_s >= self._read_s:
            self._read, self._read_s = bytes_read(), now_s + self._every_s
        if not self._weighs:
            return *self._read, UNKNOWN, UNKNOWN
        own = self._weigh(now_s) if worker != MAIN else 0
        return *self._read, own, self._pool_threads

    def _weigh(self, now_s: float) -> int:
        if now_s < self._weighed_s:
            return 0
        before = time.thread_time()
        own = own_bytes()
        cost_s = time.thread_time() - before
        self._weighed_s = now_s + max(WEIGHED_EVERY_S, cost_s / WEIGHING_SHARE)
        return own


# These ask the operating system; where it does not know, they return 0.


def pool_threads() -> int:
    """Return the most threads that a pool of a numerical library may use in this process."""
    from threadpoolctl import threadpool_info

    return max((pool["num_threads"] for pool in threadpool_info()), default=1)


def bytes_read() -> tuple[int, int, int]:
    """Return the bytes that this process has read, those of them from a disk, and how often."""
    try:
        with open("/proc/self/io", "rb") as file:
            figures = dict(line.split(b": ") for line in file.read().splitlines())
        return tuple(int(figures[name]) for name in (b"rchar", b"read_bytes", b"syscr"))  # type: ignore[return-value]
    except (OSError, KeyError, ValueError):
        return 0, 0, 0


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
