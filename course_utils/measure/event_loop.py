"""A minimal discrete-event loop: processes that take time, wait for signals and share resources."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator, Iterator
from itertools import count

Process = Generator["float | Signal", None, None]


class Signal:
    """Something that happens once, and the processes that wait for it."""

    def __init__(self) -> None:
        self.happened = False
        self.waiting: list[Process] = []


class EventLoop:
    """Run processes that yield either a delay in ms or a signal to wait for."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._queue: list[tuple[float, int, Process]] = []
        self._order = count()

    def start(self, process: Process, delay_ms: float = 0.0) -> None:
        """Let `process` begin, or go on, after `delay_ms`."""
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), process))

    def happen(self, signal: Signal) -> None:
        """Wake all processes that wait for `signal`."""
        signal.happened = True
        for process in signal.waiting:
            self.start(process)

    def run(self) -> None:
        """Go on until no process has anything left to do."""
        while self._queue:
            self.now_ms, _, process = heapq.heappop(self._queue)
            self._resume(process)

    def _resume(self, process: Process) -> None:
        for wanted in process:
            if isinstance(wanted, float):
                return self.start(process, wanted)
            if not wanted.happened:
                wanted.waiting.append(process)
                return None
        return None


class Slots:
    """A resource with a number of places, given out first come, first served."""

    def __init__(self, loop: EventLoop, places: int | None):
        self.loop = loop
        self.free = places  # None: no limit
        self.queue = deque[Signal]()

    def take(self) -> Iterator[Signal]:
        """Wait for a place: `yield from slots.take()`."""
        if self.free is None:
            return
        if self.free == 0:
            self.queue.append(turn := Signal())
            yield turn
        else:
            self.free -= 1

    def give_back(self) -> None:
        """Hand the place to the first in the queue."""
        if self.free is None:
            return
        if self.queue:
            self.loop.happen(self.queue.popleft())
        else:
            self.free += 1
