"""Let an emulated storage take its time without making anybody wait.

    fs = slow_storage(folder, "S3")
    clock = VirtualClock(fs)
    start = clock()
    ...  # read; every emulated wait is over at once
    seconds = (clock() - start) / 1e9

For one process with one reader: readers side by side would wait one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from course_utils.hardware.storage.filesystem import SlowFileSystem

# Windows counts the computing of a process in steps of 15.6 ms
_FINE = time.get_clock_info("process_time").resolution < 1e-4
_computing = time.process_time_ns if _FINE else time.perf_counter_ns


class VirtualClock:
    """Time in nanoseconds that passes while this process computes and while the storage works.

    What the storage would have let us wait is added up, not slept. What other programs take from
    this one does not count: a busy machine gives the same figures.
    """

    def __init__(self, fs: SlowFileSystem, *, computing: Callable[[], int] = _computing):
        """Drive the storage behind `fs`, in this process, from now on.

        Args:
            fs: an emulated storage.
            computing: how long this process has computed so far, in nanoseconds.
        """
        # it goes on from where the clock before it is: the calendar may be full up to there
        self._computing, self._waited = computing, 0
        self._start = fs.device.clock() - computing()
        fs.device.clock, fs.device.sleep = self, self._wait

    def __call__(self) -> int:
        """Return the time."""
        return self._start + self._computing() + self._waited

    @property
    def waited(self) -> int:
        """How much of it the storage took."""
        return self._waited

    def _wait(self, seconds: float) -> None:
        self._waited += round(seconds * 1e9)
