"""An accelerator and a clock for its times: the real ones, or both emulated.

    gpu, clock = timed_accelerator("RTX 3090", step_ms=3)
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(batch)).item()

Without a GPU nobody waits: an emulated wait only puts the clock forward. What Python computes in
between takes no time on it, so that the copies and steps of a picture are exact.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from course_utils.hardware.gpu.accelerator import Accelerator, get_accelerator
from course_utils.hardware.gpu.streams import sleep_until


class HostClock(Protocol):
    """The time of a host, in nanoseconds, and how it waits."""

    def __call__(self) -> int:
        """Return the time."""

    def sleep_until(self, end_ns: int) -> None:
        """Wait until it is `end_ns`; if it is later, go on at once."""


class RealTime:
    """The clock of this machine."""

    def __call__(self) -> int:
        """Return the time."""
        return time.perf_counter_ns()

    def sleep_until(self, end_ns: int) -> None:
        """Sleep until it is `end_ns`."""
        sleep_until(end_ns)


class VirtualTime:
    """A clock, from 0, that only waiting puts forward; any thread may use it."""

    def __init__(self) -> None:
        self._now, self._lock = 0, threading.Lock()

    def __call__(self) -> int:
        """Return the time."""
        return self._now

    def sleep_until(self, end_ns: int) -> None:
        """Be at `end_ns` at once."""
        with self._lock:
            self._now = max(self._now, end_ns)


def timed_accelerator(
    preset: str = "RTX 3090", *, step_ms: float | None = None, emulate: bool | None = None
) -> tuple[Accelerator, HostClock]:
    """Return what `get_accelerator` does, and the clock to record its traces with.

    Raises:
        ValueError: if there is no such preset.
        RuntimeError: if CUDA is insisted on (`emulate=False`) and there is none.
    """
    clock = VirtualTime()
    gpu = get_accelerator(preset, step_ms=step_ms, emulate=emulate, clock=clock)
    return gpu, clock if gpu.emulated else RealTime()
