"""Measure with CUDA events how long the device was idle while the loop waited for a batch.

The clock records an event before and after each call of next() and queries both later, so the host
never waits for the device. Between the two events the loop gives the device no work. The time
between them is therefore the device time lost to the loader. This module never initializes CUDA.

The clock of the device starts at an unknown time. An event completes after it was recorded, and
before a query that finds it complete, which relates both clocks without waiting for the device.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch

MAX_PENDING = 64  # iterations that the device may lag behind before the oldest are dropped
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal: only captures of this thread restrict it

Report = Callable[[int, float, float, float], None]


class Mark(NamedTuple):
    """An event, the device of its stream, and the host time at which it was recorded."""

    event: Any
    device: int
    recorded_ns: int


class DeviceClock:
    """Clock that marks the iterations of one loop with events on the current stream.

    CUDA cannot compare events of two devices, so iterations that use two devices are dropped.
    Querying an event would break a graph that another thread is capturing. This thread therefore
    first declares that it does not take part in the capture. The clock stops at the first error.
    """

    def __init__(self, report: Report, clock: Callable[[], int] = perf_counter_ns):
        """Create a clock that calls `report(place, idle_ns, work_ns, ended_ns)` later.

        `ended_ns` is the time on the host's `clock` at which the device ended this work.
        """
        self.enabled = True
        self._report, self._clock = report, clock
        self._asked: Mark | None = None
        self._current: tuple[int, Mark, Mark] | None = None  # place, before and after next()
        self._pending: deque[tuple[int, Mark, Mark, Mark]] = deque(maxlen=MAX_PENDING)
        self._last: tuple[Mark, float] | None = None  # last mark that was read, and its time

    def asked(self) -> None:
        """Mark that the loop asks for a batch, and read the events that have completed."""
        if self.enabled:
            with self._stop_on_error():
                self._ask()
                self._read()

    def got(self, place: int) -> None:
        """Mark that the loop received the batch of the iteration at `place` in its file."""
        self._current = None
        if self.enabled and self._asked is not None:
            with self._stop_on_error():
                self._current = place, self._asked, self._mark()
                self._asked = None  # so that a request without a mark does not reuse it

    def forget(self) -> None:
        """Drop the current iteration, because the time until the next batch is not part of it."""
        self._current = None

    def finish(self) -> None:
        """Wait for the device, and report all iterations."""
        if self.enabled and self._pending:
            with self._stop_on_error():
                self._pending[-1][-1].event.synchronize()
                self._read()

    def _ask(self) -> None:
        self._asked = self._mark()
        if self._current is not None:
            place, before, after = self._current
            self._current = None
            if before.device == after.device == self._asked.device:
                self._pending.append((place, before, after, self._asked))

    def _read(self) -> None:
        while self._pending and self._pending[0][-1].event.query():
            place, before, after, left = self._pending.popleft()
            idle_ns, work_ns = _elapsed_ns(before, after), _elapsed_ns(after, left)
            earliest_ns = [left.recorded_ns, after.recorded_ns + work_ns]
            if self._last is not None and self._last[0].device == before.device:
                last, last_ns = self._last
                earliest_ns.append(last_ns + _elapsed_ns(last, before) + idle_ns + work_ns)
            self._last = left, min(max(earliest_ns), self._clock())
            self._report(place, idle_ns, work_ns, self._last[1])

    def _mark(self) -> Mark:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        recorded_ns = self._clock()
        event.record()
        return Mark(event, torch.cuda.current_device(), recorded_ns)

    @contextmanager
    def _stop_on_error(self) -> Iterator[None]:
        exchange, mode = _exchange_capture_mode(), ctypes.c_int(_THREAD_LOCAL)
        if exchange is not None:
            exchange(ctypes.byref(mode))
        try:
            yield
        except RuntimeError:
            self.enabled, self._asked, self._current = False, None, None
            self._pending.clear()
        finally:
            if exchange is not None:
                exchange(ctypes.byref(mode))  # restores the mode of the program


def device_in_use() -> bool:
    """Return whether this program uses CUDA and can record events now."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return (
        started
        and _exchange_capture_mode() is not None
        and not torch.cuda.is_current_stream_capturing()
    )


@cache
def _exchange_capture_mode() -> Any:
    """Return cudaThreadExchangeStreamCaptureMode of the CUDA runtime of torch, or None.

    torch offers this function only in C++, as CUDAStreamCaptureModeGuard.
    """
    major = (torch.version.cuda or "").partition(".")[0]
    name = f"cudart64_{major}.dll" if sys.platform == "win32" else f"libcudart.so.{major}"
    try:
        return ctypes.CDLL(name).cudaThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None


def _elapsed_ns(start: Mark, end: Mark) -> float:
    return 0.0 if start is end else start.event.elapsed_time(end.event) * 1e6
