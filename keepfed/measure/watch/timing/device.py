"""Read from CUDA how long it had nothing to do while the loop waited for a batch.

An event is recorded before and after each call of next(), and asked later whether it has passed:
the host never waits for the device. Between the two events the device has nothing of the loop to
do, so the time between them is what the loader cost the device. No CUDA is started here.
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

MAX_PENDING = 64  # turns that the device may be behind; the oldest are then given up
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal: only captures of this thread restrict it

Mark = tuple[Any, int]  # the event and the device of its stream


class DeviceClock:
    """Marks the turns of one loop on the current stream.

    CUDA refuses to compare events of two devices, so turns on two devices are dropped. A query of
    an event would break a graph that another thread captures, so this thread first declares that it
    takes no part in such a capture. The first error ends the marking.
    """

    def __init__(self, known: Callable[[int, float, float], None]):
        """Have `known(number, idle_ns, work_ns)` called for each turn, some turns later."""
        self._known = known
        self._asked: Mark | None = None
        self._turn: tuple[int, Mark, Mark] | None = None  # number, before and after next()
        self._pending: deque[tuple[int, Any, Any, Any]] = deque(maxlen=MAX_PENDING)
        self._works = True

    def asked(self) -> None:
        """Mark that the loop asks for a batch, which ends the turn before; read what has passed."""
        if self._works:
            with self._stop_on_error():
                self._ask()

    def got(self, number: int) -> None:
        """Mark that the loop goes on with the batch of turn `number`."""
        if self._works and self._asked is not None:
            with self._stop_on_error():
                self._turn = number, self._asked, _mark()

    def forget(self) -> None:
        """Drop the current turn: what happens until the next batch is not part of it."""
        self._turn = None

    def _ask(self) -> None:
        self._asked = _mark()
        if self._turn is not None:
            number, *marks = *self._turn, self._asked
            self._turn = None
            if len({device for _, device in marks}) == 1:
                before, after, left = (event for event, _ in marks)
                self._pending.append((number, before, after, left))
        while self._pending and self._pending[0][3].query():
            number, before, after, left = self._pending.popleft()
            self._known(number, before.elapsed_time(after) * 1e6, after.elapsed_time(left) * 1e6)

    @contextmanager
    def _stop_on_error(self) -> Iterator[None]:
        exchange, mode = _exchange_capture_mode(), ctypes.c_int(_THREAD_LOCAL)
        if exchange is not None:
            exchange(ctypes.byref(mode))
        try:
            yield
        except RuntimeError:
            self._works, self._asked, self._turn = False, None, None
            self._pending.clear()
        finally:
            if exchange is not None:
                exchange(ctypes.byref(mode))  # the mode of the program again


def device_in_use() -> bool:
    """Return whether this program computes on CUDA, and events can be recorded now."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return (
        started
        and _exchange_capture_mode() is not None
        and not torch.cuda.is_current_stream_capturing()
    )


@cache
def _exchange_capture_mode() -> Any:
    """Return cudaThreadExchangeStreamCaptureMode of the runtime that torch uses; None without it.

    torch has it only in C++ (CUDAStreamCaptureModeGuard).
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
