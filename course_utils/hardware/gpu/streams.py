"""Streams and events of the emulated device: when an operation runs, and who knows it is done.

*When* needs no thread and no waiting. Durations are known, so start and end of an operation are
computed when it is launched. Only a host that asks for the result sleeps.

*Who knows* is separate from when. For every stream, each stream (and the host) stores how many of
its operations have certainly finished before its own next operation starts. Events carry this list
from one stream to another. A stream may use data only if it knows that they were written. If it is
merely late enough, real hardware sometimes gives the right result, but the emulator never does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from course_utils.hardware.clock import HostClock
from keepfed.forks import reset_after_fork

STREAMS = 32  # streams that PyTorch creates for a device and then reuses
# Approximate number of operations that a stream queues; the host blocks before the next one.
# https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937
QUEUE = 1000
ASKING_NS = 1_000  # cost of a query, so that polling also advances a virtual clock

Known = dict[int, int]  # stream number -> number of its operations that have certainly finished


def learn(known: Known, news: Known) -> None:
    """Add the entries of `news` to `known`."""
    for stream, count in news.items():
        known[stream] = max(known.get(stream, 0), count)


class Engine:
    """A part of the device that does one thing at a time."""

    def __init__(self) -> None:
        self.free_ns = 0


class Operation(NamedTuple):
    """A copy or a kernel that was launched."""

    stream: int
    serial: int  # position in the stream, from 1
    start_ns: int
    end_ns: int
    known: Known  # operations that have finished once this one has

    def is_known(self, known: Known) -> bool:
        """Return whether an observer with the knowledge `known` knows that it has finished."""
        return known.get(self.stream, 0) >= self.serial


class Driver:
    """The host's side: the clock, the current stream of each thread, and the host's knowledge."""

    lock: threading.RLock

    def __init__(self, clock: HostClock):
        """Start with no operation launched."""
        self.clock = clock
        self.known: Known = {}
        reset_after_fork(self, "lock", threading.RLock)
        self.streams: list[EmulatedStream] = []
        self._handed_out = 0
        self.on_learning: Callable[[Known], None] = lambda known: None
        self._thread = threading.local()
        self.default_stream = EmulatedStream(self)

    def learn(self, known: Known) -> None:
        """Add `known` to the host's knowledge, and notify `on_learning`."""
        with self.lock:
            learn(self.known, known)
            self.on_learning(self.known)

    def wait(self, until_ns: int, known: Known) -> None:
        """Block the host until `until_ns`; then it knows `known`."""
        self.learn(known)
        self.clock.sleep_until(until_ns)

    @property
    def stream(self) -> EmulatedStream:
        """The current stream of this thread."""
        return getattr(self._thread, "stream", self.default_stream)

    def next_stream(self) -> EmulatedStream:
        """Return the next stream, and the first one again after the last."""
        with self.lock:
            place = 1 + self._handed_out % STREAMS
            self._handed_out += 1
            return self.streams[place] if place < len(self.streams) else EmulatedStream(self)

    @contextmanager
    def use(self, stream: EmulatedStream | None) -> Iterator[None]:
        """Make `stream` the current stream of this thread."""
        before = self.stream
        self._thread.stream = stream or before
        try:
            yield
        finally:
            self._thread.stream = before


class EmulatedStream:
    """A queue of operations that run one at a time. Its methods are those of torch.Stream."""

    def __init__(self, driver: Driver):
        self._driver = driver
        self.tail_ns = 0  # earliest start of the next operation
        self.known: Known = {}
        self._ends_ns: deque[int] = deque(maxlen=QUEUE)  # ends of the latest operations
        with driver.lock:
            self.number = len(driver.streams)
            driver.streams.append(self)

    def launch(self, engine: Engine, duration_ns: int) -> Operation:
        """Queue an operation of known duration, and return its times."""
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
        """Record `event`, or a new one, after the operations launched so far."""
        event = event or EmulatedEvent(self._driver)
        event.record(self)
        return event

    def wait_event(self, event: EmulatedEvent) -> None:
        """Make later operations of this stream wait for `event`."""
        event.wait(self)

    def wait_stream(self, stream: EmulatedStream) -> None:
        """Make later operations of this stream wait for the current work of `stream`."""
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        """Block the host until all operations launched here have finished."""
        self.record_event().synchronize()

    def query(self) -> bool:
        """Return whether all operations launched here have finished."""
        return self.record_event().query()

    def __repr__(self) -> str:
        return f"<emulated stream {self.number}>"


class EmulatedEvent:
    """A mark in a stream that others can wait for. Its methods are those of torch.Event."""

    def __init__(self, driver: Driver, *, enable_timing: bool = False):
        self._driver, self._timing = driver, enable_timing
        self._time_ns = -1  # time at which it is reached; -1: not recorded
        self._known: Known = {}  # operations that have finished then

    def record(self, stream: EmulatedStream | None = None) -> None:
        """Put the mark after the operations launched on `stream` (default: the current one)."""
        stream = stream or self._driver.stream
        with self._driver.lock:
            self._time_ns = max(self._driver.clock(), stream.tail_ns)
            self._known = dict(stream.known)

    def wait(self, stream: EmulatedStream | None = None) -> None:
        """Make later operations of `stream` (default: the current one) wait for the mark."""
        stream = stream or self._driver.stream
        with self._driver.lock:
            stream.tail_ns = max(stream.tail_ns, self._time_ns)
            learn(stream.known, self._known)

    def synchronize(self) -> None:
        """Block the host until the mark is reached."""
        self._driver.wait(self._time_ns, self._known)

    def query(self) -> bool:
        """Return whether the mark is reached."""
        now_ns = self._driver.clock()
        if now_ns < self._time_ns:
            self._driver.clock.sleep_until(now_ns + ASKING_NS)
            return False
        self._driver.learn(self._known)
        return True

    def elapsed_time(self, end_event: EmulatedEvent) -> float:
        """Return the milliseconds from this mark to `end_event`.

        Raises:
            RuntimeError: If one of them has no timing, was not recorded or is not reached yet.
        """
        for event in (self, end_event):
            if not event._timing:
                raise RuntimeError(
                    "The event has no timing. Create it with Event(enable_timing=True)."
                )
            if event._time_ns < 0 or not event.query():
                raise RuntimeError(
                    "The event is not reached yet. Call record(), then synchronize()."
                )
        return (end_event._time_ns - self._time_ns) / 1e6
