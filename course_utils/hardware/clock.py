"""Clocks for emulated hardware: the real clock, and a virtual one whose waits take no time."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from keepfed.forks import reset_after_fork

# Windows updates process_time only every 15.6 ms.
_FINE = time.get_clock_info("process_time").resolution < 1e-4
_computing = time.process_time_ns if _FINE else time.perf_counter_ns


class HostClock(Protocol):
    """Clock of a host in nanoseconds, with a method to wait."""

    def __call__(self) -> int:
        """Return the current time."""

    def sleep_until(self, end_ns: int) -> None:
        """Wait until `end_ns`, or return immediately if that time has passed."""


class RealClock:
    """The clock of this machine."""

    def __init__(self, *, early_ns: int = 70_000):
        """Create a clock that requests `early_ns` less sleep, because `time.sleep` oversleeps.

        Spinning would be more precise, but a spinning process loses the scheduling priority of a
        sleeping one, which costs milliseconds on a busy machine.
        """
        self._early_ns = early_ns

    def __call__(self) -> int:
        """Return the current time."""
        return time.perf_counter_ns()

    def sleep_until(self, end_ns: int) -> None:
        """Sleep until `end_ns`, accurate to about 0.1 ms."""
        while (left_ns := end_ns - time.perf_counter_ns()) > 0:
            time.sleep(max(left_ns - self._early_ns, 0) / 1e9)


class Timed(Protocol):
    """An emulated storage, or another object with a clock."""

    clock: HostClock


class VirtualClock:
    """Clock that jumps ahead instead of waiting. Any thread of this process may use it.

        fs = slow_storage(folder, "S3")
        clock = VirtualClock(fs)
        start = clock()
        ...  # read; emulated waits take no time
        seconds = (clock() - start) / 1e9

    Without a storage, the clock starts at 0 and advances only by waits, so copies and steps of an
    emulated GPU take exact times. With a storage, it also advances by the CPU time of this process.
    It ignores the load of other programs, so a busy machine gives the same figures.
    """

    _lock: threading.Lock

    def __init__(self, storage: Timed | None = None) -> None:
        """Start the clock and attach it to `storage` in this process."""
        self._computing = _computing if storage else lambda: 0
        self.waited = 0  # ns of this clock spent waiting
        reset_after_fork(self, "_lock", threading.Lock)
        # Continue from the storage's previous clock, because the storage may be busy until then.
        self._start = storage.clock() - self._computing() if storage else 0
        if storage:
            storage.clock = self

    def __call__(self) -> int:
        """Return the current time."""
        return self._start + self._computing() + self.waited

    def sleep_until(self, end_ns: int) -> None:
        """Advance the clock to `end_ns`."""
        with self._lock:
            self.waited += max(0, end_ns - self())
