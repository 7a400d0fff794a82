"""Streams and events of the emulated device: when an operation runs, and who knows it is done.

*When* needs no thread and no waiting: durations are known, so the start and the end of an operation
are computed as it is launched, and only a host that asks for the result sleeps.

*Who knows* is kept apart from when. Each stream (and the host) keeps a list of how many operations
of every stream are certain to be finished before its own next one starts; events carry such a list
from one stream to another. Data may be used by those who know that it was written, not by those who
are merely late enough: real hardware sometimes lets them get away with it, the emulator never does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from course_utils.hardware.clock import HostClock
from keepfed.forks import reset_after_fork

STREAMS = 32  # that PyTorch hands out for a device, one after the other, and then again
# Operations that a stream takes, about: the host waits with the next one.
# https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937
QUEUE = 1000
ASKING_NS = 1_000  # of the host: by a clock that only waiting moves, who asks in a loop gets on

Known = dict[int, int]  # number of a stream -> how many of its operations are finished for certain


def learn(known: Known, news: Known) -> None:
    """Add to `known` what is in `news`."""
    for stream, count in news.items():
        known[stream] = max(known.get(stream, 0), count)


class Engine:
    """A part of the device that does one thing at a time."""

    def __init__(self) -> None:
        self.free_ns = 0


class Operation(NamedTuple):
    """A copy or a kernel that was launched."""

    stream: int
    serial: int  # its place in the stream, from 1
    start_ns: int
    end_ns: int
    known: Known  # what is finished once this is

    def is_known(self, known: Known) -> bool:
        """Tell whether it is finished for one who knows `known`."""
        return known.get(self.stream, 0) >= self.serial


class Driver:
    """The host's side: the clock, the current stream of each thread, what the host knows."""

    lock: threading.RLock

    def __init__(self, clock: HostClock):
        """Start with nothing launched."""
        self.clock = clock
        self.known: Known = {}
        reset_after_fork(self, "lock", threading.RLock)
        self.streams: list[EmulatedStream] = []
        self._handed_out = 0
        self.on_learning: Callable[[Known], None] = lambda known: None
        self._thread = threading.local()
        self.default_stream = EmulatedStream(self)

    def learn(self, known: Known) -> None:
        """Let the host know `known`, and say so to who takes note of it."""
        with self.lock:
            learn(self.known, known)
            self.on_learning(self.known)

    def wait(self, until_ns: int, known: Known) -> None:
        """Block the host until `until_ns`, after which it knows `known`."""
        self.learn(known)
        self.clock.sleep_until(until_ns)

    @property
    def stream(self) -> EmulatedStream:
        """The current stream of this thread."""
        return getattr(self._thread, "stream", self.default_stream)

    def next_stream(self) -> EmulatedStream:
        """Hand out the next of the streams, and after the last one the first again."""
        with self.lock:
            place = 1 + self._handed_out % STREAMS
            self._handed_out += 1
            return self.streams[place] if place < len(self.streams) else EmulatedStream(self)

    @contextmanager
    def use(self, stream: EmulatedStream | None) -> Iterator[None]:
        """Make `stream` the current one of this thread."""
        before = self.stream
        self._thread.stream = stream or before
        try:
            yield
        finally:
            self._thread.stream = before


class EmulatedStream:
    """A queue of operations that run one after the other; the methods are torch.Stream's."""

    def __init__(self, driver: Driver):
        self._driver = driver
        self.tail_ns = 0  # when the next operation can start at the earliest
        self.known: Known = {}
        self._ends_ns: deque[int] = deque(maxlen=QUEUE)  # of the latest operations
        with driver.lock:
            self.number = len(driver.streams)
            driver.streams.append(self)

    def launch(self, engine: Engine, duration_ns: int) -> Operation:
        """Queue an operation of known duration and return when it runs."""
        with self._driver.lock:
            if len(self._ends_ns) == QUEUE:
                self._driver.clock.sleep_until(self._ends_ns[0])
            learn(self.known, self._driver.known)
            start = max(self._driver.clock(), self.tail_ns, engine.free_ns)
            self.tail_ns = engine.free_ns = end = start + duration_ns
            self._ends_ns.append(end)
            serial = self.known[self.number] = self.known.get(self.number, 0) + 1
            return Operation(self.number, serial, start, end, dict(self.known))

    def record_event(self, event: EmulatedEvent | None = None) -> EmulatedEvent:
        """Put `event`, or a new one, behind what was launched here."""
        event = event or EmulatedEvent(self._driver)
        event.record(self)
        return event

    def wait_event(self, event: EmulatedEvent) -> None:
        """Hold back what is launched here from now on until `event` has happened."""
        event.wait(self)

    def wait_stream(self, stream: EmulatedStream) -> None:
        """Hold back what is launched here from now on until `stream` has done what it has now."""
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        """Block the host until everything launched here is finished."""
        self.record_event().synchronize()

    def query(self) -> bool:
        """Tell whether everything launched here is finished."""
        return self.record_event().query()

    def __repr__(self) -> str:
        return f"<emulated stream {self.number}>"


class EmulatedEvent:
    """A mark in a stream that others can wait for; the methods are torch.Event's."""

    def __init__(self, driver: Driver, *, enable_timing: bool = False):
        self._driver, self._timing = driver, enable_timing
        self._time_ns = -1  # when it is passed; -1: it was not recorded
        self._known: Known = {}  # what is finished then

    def record(self, stream: EmulatedStream | None = None) -> None:
        """Put the mark behind what was launched on `stream` (or the current one)."""
        stream = stream or self._driver.stream
        with self._driver.lock:
            self._time_ns = max(self._driver.clock(), stream.tail_ns)
            self._known = dict(stream.known)

    def wait(self, stream: EmulatedStream | None = None) -> None:
        """Hold back what is launched on `stream` (or the current one) until the mark is passed."""
        stream = stream or self._driver.stream
        with self._driver.lock:
            stream.tail_ns = max(stream.tail_ns, self._time_ns)
            learn(stream.known, self._known)

    def synchronize(self) -> None:
        """Block the host until the mark is passed."""
        self._driver.wait(self._time_ns, self._known)

    def query(self) -> bool:
        """Tell whether the mark is passed."""
        now_ns = self._driver.clock()
        if now_ns < self._time_ns:
            self._driver.clock.sleep_until(now_ns + ASKING_NS)
            return False
        self._driver.learn(self._known)
        return True

    def elapsed_time(self, end_event: EmulatedEvent) -> float:
        """Return the milliseconds from this mark to `end_event`.

        Raises:
            RuntimeError: if one of them measures no time, was not recorded or is not passed yet.
        """
        for event in (self, end_event):
            if not event._timing:
                raise RuntimeError("The event measures no time: make it Event(enable_timing=True).")
            if event._time_ns < 0 or not event.query():
                raise RuntimeError("The event is not passed yet: record() it, then synchronize().")
        return (end_event._time_ns - self._time_ns) / 1e6
