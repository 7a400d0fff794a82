"""Measure with CUDA events how long the device was idle while the loop waited for a batch.

The clock records an event before and after each call of next() and queries both later, so the host
never waits for the device. Between the two events the loop gives the device no work. The time
between them is therefore the device time lost to the loader. This module never initializes CUDA.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

MAX_PENDING = 64  # iterations that the device may lag behind before the oldest are dropped
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal: only captures of this thread restrict it

Mark = tuple[Any, int]  # event and the device of its stream


class DeviceClock:
    """Clock that marks the iterations of one loop with events on the current stream.

    CUDA cannot compare events of two devices, so iterations that use two devices are dropped.
    Querying an event would break a graph that another thread is capturing. This thread therefore
    first declares that it does not take part in the capture. The clock stops at the first error.
    """

    def __init__(self, report: Callable[[int, float, float], None]):
        """Create a clock that calls `report(place, idle_ns, work_ns)` a few iterations later."""
        self._report = report
        self._asked: Mark | None = None
        self._current: tuple[int, Mark, Mark] | None = None  # place, before and after next()
        self._pending: deque[tuple[int, Any, Any, Any]] = deque(maxlen=MAX_PENDING)
        self._enabled = True

    def asked(self) -> None:
        """Mark that the loop asks for a batch, and read the events that have completed."""
        if self._enabled:
            with self._stop_on_error():
                self._ask()

    def got(self, place: int) -> None:
        """Mark that the loop received the batch of the iteration at `place` in its file."""
        if self._enabled and self._asked is not None:
            with self._stop_on_error():
                self._current = place, self._asked, _mark()

    def forget(self) -> None:
        """Drop the current iteration, because the time until the next batch is not part of it."""
        self._current = None

    def _ask(self) -> None:
        self._asked = _mark()
        if self._current is not None:
            place, *marks = *self._current, self._asked
            self._current = None
            if len({device for _, device in marks}) == 1:
                before, after, left = (event for event, _ in marks)
                self._pending.append((place, before, after, left))
        while self._pending and self._pending[0][3].query():
            place, before, after, left = self._pending.popleft()
            self._report(place, before.elapsed_time(after) * 1e6, after.elapsed_time(left) * 1e6)

    @contextmanager
    def _stop_on_error(self) -> Iterator[None]:
        exchange, mode = _exchange_capture_mode(), ctypes.c_int(_THREAD_LOCAL)
        if exchange is not None:
            exchange(ctypes.byref(mode))
        try:
            yield
        except RuntimeError:
            self._enabled, self._asked, self._current = False, None, None
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


def _mark() -> Mark:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event, torch.cuda.current_device()
