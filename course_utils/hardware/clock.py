"""The time by which a host waits for hardware: this machine's, or one that nobody waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from keepfed.forks import reset_after_fork

# Windows counts the computing of a process in steps of 15.6 ms
_FINE = time.get_clock_info("process_time").resolution < 1e-4
_computing = time.process_time_ns if _FINE else time.perf_counter_ns


class HostClock(Protocol):
    """The time of a host, in nanoseconds, and how it waits."""

    def __call__(self) -> int:
        """Return the time."""

    def sleep_until(self, end_ns: int) -> None:
        """Wait until it is `end_ns`; if it is later, go on at once."""


class RealClock:
    """The clock of this machine."""

    def __init__(self, *, early_ns: int = 70_000):
        """Ask for so much less sleep than is due: by so much at least `time.sleep` oversleeps.

        Spinning would be more exact, but costs the process the priority that sleepers get, and that
        costs milliseconds on a busy machine.
        """
        self._early_ns = early_ns

    def __call__(self) -> int:
        """Return the time."""
        return time.perf_counter_ns()

    def sleep_until(self, end_ns: int) -> None:
        """Sleep until it is `end_ns`, to within some 0.1 ms."""
        while (left_ns := end_ns - time.perf_counter_ns()) > 0:
            time.sleep(max(left_ns - self._early_ns, 0) / 1e9)


class Timed(Protocol):
    """An emulated storage, or what else goes by a clock."""

    clock: HostClock


class VirtualClock:
    """A clock that waiting puts forward at once; any thread of this process may use it.

        fs = slow_storage(folder, "S3")
        clock = VirtualClock(fs)
        start = clock()
        ...  # read; every emulated wait is over at once
        seconds = (clock() - start) / 1e9

    Alone, or with an emulated GPU, it begins at 0 and only waiting passes time, so that copies and
    steps are exact. Over a storage, this process's computing passes time too; what other programs
    take from it does not, so a busy machine gives the same figures.
    """

    _lock: threading.Lock

    def __init__(
        self, storage: Timed | None = None, *, computing: Callable[[], int] | None = None
    ) -> None:
        """Begin; `storage` goes by this clock from now on, in this process.

        `computing` tells the nanoseconds that this process has computed so far.
        """
        self._computing = computing or (_computing if storage else lambda: 0)
        self.waited = 0  # how much of its time, in ns, was waiting
        reset_after_fork(self, "_lock", threading.Lock)
        # it goes on from where the clock before it is: the storage may be busy up to there
        self._start = storage.clock() - self._computing() if storage else 0
        if storage:
            storage.clock = self

    def __call__(self) -> int:
        """Return the time."""
        return self._start + self._computing() + self.waited

    def sleep_until(self, end_ns: int) -> None:
        """Be at `end_ns` at once."""
        with self._lock:
            self.waited += max(0, end_ns - self())
