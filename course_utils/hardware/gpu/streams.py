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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from course_utils.forks import set_in_every_fork
from course_utils.hardware.clock import HostClock

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
        set_in_every_fork(self, "lock", threading.RLock)
        self.streams: list[EmulatedStream] = []
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
        with driver.lock:
            self.number = len(driver.streams)
            driver.streams.append(self)

    def launch(self, engine: Engine, duration_ns: int) -> Operation:
        """Queue an operation of known duration and return when it runs."""
        with self._driver.lock:
            learn(self.known, self._driver.known)
            start = max(self._driver.clock(), self.tail_ns, engine.free_ns)
            self.tail_ns = engine.free_ns = end = start + duration_ns
            serial = self.known[self.number] = self.known.get(self.number, 0) + 1
            return Operation(self.number, serial, start, end, dict(self.known))

    def record_event(self) -> EmulatedEvent:
        """Put a mark behind what was launched here."""
        with self._driver.lock:
            return EmulatedEvent(self._driver, self.tail_ns, dict(self.known))

    def wait_event(self, event: EmulatedEvent) -> None:
        """Hold back what is launched here from now on until `event` has happened."""
        with self._driver.lock:
            self.tail_ns = max(self.tail_ns, event.time_ns)
            learn(self.known, event.known)

    def wait_stream(self, stream: EmulatedStream) -> None:
        """Hold back what is launched here from now on until `stream` has done what it has now."""
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        """Block the host until everything launched here is finished."""
        self.record_event().synchronize()

    def __repr__(self) -> str:
        return f"<emulated stream {self.number}>"


class EmulatedEvent:
    """A mark in a stream that others can wait for; the methods are torch.Event's."""

    def __init__(self, driver: Driver, time_ns: int, known: Known):
        self._driver = driver
        self.time_ns = time_ns  # when it is passed
        self.known = known  # what is finished then

    def synchronize(self) -> None:
        """Block the host until the mark is passed."""
        self._driver.wait(self.time_ns, self.known)

    def query(self) -> bool:
        """Tell whether the mark is passed."""
        passed = self._driver.clock() >= self.time_ns
        if passed:
            self._driver.learn(self.known)
        return passed
