"""When an emulated object store answers: the same figures as `slow://`, for connections.

A request takes one of a fixed number of slots and waits `request_ms`; its bytes then pass, piece by
piece, at no more than the rate of one stream and through the one line that all answers share. A
slot is free again as soon as its answer is sent or its client has gone.

The calendar of `storage_device` does not fit: it reserves a read as a whole, so a shard of 100 MB
would hold the line until its last byte, also after its reader has left.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from course_utils.hardware.storage import StoragePreset

# an event loop wakes up late; what it missed is made good, but no more than this
_LATE_S = 0.02 + time.get_clock_info("monotonic").resolution

NO_LIMITS = StoragePreset(
    name="as fast as this machine can",
    open_ms=0,
    opens_per_s=math.inf,
    request_ms=0,
    requests_at_once=1_000_000,
    mb_s=math.inf,
    stream_mb_s=math.inf,
    readahead=False,
    cache_mb=0,
    sources={},
)


class Limits:
    """What all connections of one store share. Times are seconds of `clock`."""

    def __init__(
        self, preset: StoragePreset, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Begin with an idle store."""
        self.preset, self.clock = preset, clock
        self.slots = asyncio.Semaphore(preset.requests_at_once)
        self._line = self._metadata = -math.inf

    def look_up(self) -> float:
        """Return when a size or a listing that is asked for now is there."""
        start = max(self.clock(), self._metadata)
        self._metadata = start + 1 / self.preset.opens_per_s
        return start + self.preset.open_ms / 1e3

    def answer(self) -> Answer:
        """Return the times of an answer to a request that takes its slot now."""
        return Answer(self)

    def pass_line(self, size: int) -> float:
        """Return when `size` more bytes, of whichever answer, are through the line."""
        now = self.clock()
        was_idle = self._line < now - _LATE_S  # and saved nothing up
        self._line = (now if was_idle else self._line) + size / (1e6 * self.preset.mb_s)
        return self._line

    async def wait(self, until: float) -> None:
        """Let the others go on until then; at least once, also when it is late already."""
        await asyncio.sleep(max(0.0, until - self.clock()))


class Answer:
    """One answer on its way to its client."""

    def __init__(self, limits: Limits):
        """Note when its first byte may go."""
        self._limits = limits
        self.first_byte = limits.clock() + limits.preset.request_ms / 1e3
        self._sent = self.first_byte

    def arrival(self, size: int) -> float:
        """Return when the next `size` bytes have arrived."""
        limits = self._limits
        ready = max(self._sent, limits.clock() - _LATE_S)
        self._sent = ready + size / (1e6 * limits.preset.stream_mb_s)
        return max(self._sent, limits.pass_line(size))
