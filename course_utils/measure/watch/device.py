"""Read from CUDA how long it had nothing to do while the loop waited for a batch.

An event is recorded before and after each call of next(), and asked later whether it has passed:
the host never waits for the device. Between the two events the device has nothing of the loop to
do, so the time between them is what the loader cost the device. No CUDA is started here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

MOST_PENDING = 64  # turns that the device may be behind; the oldest are then given up


class DeviceClock:
    """Marks the turns of one loop on the current stream."""

    def __init__(self, known: Callable[[float, float, float], None]):
        """Have `known(number, idle_ns, work_ns)` called for each turn, some turns later."""
        self._known = known
        self._asked: Any = None
        self._turn: tuple[float, Any, Any] | None = None  # number, before and after next()
        self._pending: deque[tuple[float, Any, Any, Any]] = deque(maxlen=MOST_PENDING)

    def asked(self) -> None:
        """Mark that the loop asks for a batch, which ends the turn before; read what has passed."""
        self._asked = _mark()
        if self._turn is not None:
            self._pending.append((*self._turn, self._asked))
            self._turn = None
        while self._pending and self._pending[0][3].query():
            number, before, after, left = self._pending.popleft()
            self._known(number, before.elapsed_time(after) * 1e6, after.elapsed_time(left) * 1e6)

    def got(self, number: float) -> None:
        """Mark that the loop goes on with the batch of turn `number`."""
        self._turn = number, self._asked, _mark()

    def forget(self) -> None:
        """Begin anew: what happens until the next batch is no part of a turn."""
        self._turn = None


def device_at_work() -> bool:
    """Tell whether this program computes on CUDA, and events can be recorded now."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return started and not torch.cuda.is_current_stream_capturing()


def _mark() -> Any:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
