"""Run a training loop over a prefetcher, and record everything that can be observed.

The results do not depend on the speed of this machine. Real time only limits how long we wait for a
loop that hangs, or for a thread that may prefetch too much.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, cycle
from typing import Any
from unittest.mock import patch

import psutil

from course_utils.hardware.gpu import emulated_cuda
from course_utils.hardware.gpu.emulated import DeviceTensor
from course_utils.stories.prefetchers.bench import (
    BATCH_BYTES,
    MANY,
    BenchMachine,
    BenchSource,
    DiskError,
    Tally,
    make_tensors,
)
from keepfed.batches import leaves, map_leaves
from keepfed.measure.spans import hidden_share
from keepfed.measure.trace import record

# a factory: receives the loader, the GPUs if there are any, and the depth if it is given
Make = Callable[..., Iterable[Any]]


@dataclass(frozen=True)
class Timeouts:
    """Time limits in seconds. A correct prefetcher needs milliseconds."""

    hang: float = 5.0  # a loop without progress counts as hung
    wake: float = 2.0  # a background thread has woken up
    settle: float = 0.1  # a thread that prefetches too much has done so
    leave: float = 2.0  # a thread whose loop has ended should have ended too


TIMEOUTS = Timeouts()
LOOK_S = 0.3  # time for which a thread is observed, as its CPU time has a resolution of 10 ms


@dataclass(frozen=True)
class PrefetcherTrial:
    """The arguments of a prefetcher, and the behavior of the loop over it."""

    batches: Callable[[], Sequence[Any] | None] = make_tensors  # None: endless integers
    fails_at: int | None = None  # index of the batch at which the first epoch raises an error
    gpus: int = 1  # number of GPUs, the last one is current; 0: the prefetcher gets no device
    depth: int | None = None  # None: not passed to the prefetcher
    set_epoch: int = 0  # epoch that is set after the prefetcher was created
    epochs: int = 1
    late: Collection[int] = ()  # epochs whose losses are read only at their end
    own_streams: int = 0  # new streams of each epoch, between which the steps alternate
    nested: bool = False  # whether a second loop runs inside the first one
    ahead: int = 0  # batches that a thread gets the time to prefetch in each step
    leave_after: int | None = None  # batches before a break


class TrialRun:
    """The record of one loop over a prefetcher, which the constructor runs in a thread.

    with closing(TrialRun(make, trial)) as seen:  # torch's own names act on its GPUs, if any
        print(seen.counts, seen.hung)
    """

    def __init__(self, make: Make, trial: PrefetcherTrial, timeouts: Timeouts | None = None):
        self.trial, self.timeouts = trial, timeouts or TIMEOUTS
        self.source = BenchSource(trial.batches(), trial.fails_at)
        self.machine = BenchMachine(max(1, trial.gpus))
        self._torch = ExitStack()
        if trial.gpus:
            self._torch.enter_context(emulated_cuda(self.machine))
        self.prefetcher: Iterable[Any] = ()
        self.epochs: list[list[Any]] = []  # items, or results of the steps (NaN: garbage)
        self.structures: list[str] = []  # of the batches
        self.places: set[str] = set()  # devices of the batches
        self.nothing = 0  # times that the loop got None
        self.ahead = 0  # batches that were loaded at the break but not used
        self.error: BaseException | None = None  # error that the loop received
        self.errors = 0  # epochs that ended with an error of the loader
        self._progress, self._patient = Tally(), True
        self.done = threading.Event()  # is_alive() is wrong after an interrupted join
        self._before = set(threading.enumerate())
        with (  # here and not in the thread, which may hang
            record(clock=self.machine.clock) as self.trace,
            warnings.catch_warnings(record=True, action="always") as said,
        ):
            self.hung = not self._ends(make)
        self.warnings = len(said)
        self.found = self.epochs[0] if self.epochs else []  # items of the first epoch
        self.wanted = self.source.size  # batches in an epoch
        self.counts = list(map(len, self.epochs))
        self.said = "" if self.error is None else f"{type(self.error).__name__}: {self.error}"

    def close(self) -> None:
        """Restore torch, and stop an endless source and a loop that computes forever."""
        self._torch.close()
        self.source.abandoned.set()
        # A waiting thread cannot receive the exception, and Python 3.11 cannot trace any thread
        # while one is pending. An `except Exception` does not catch SystemExit.
        if not self.done.is_set() and _computes(self._thread):
            ident, end = ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, end)

    def _ends(self, make: Make) -> bool:
        """Run the loop, and return whether it ended."""

        def run() -> None:
            try:
                self._loop(make)
            except BaseException as error:
                self.error = error
            finally:
                self.done.set()

        self._thread = threading.Thread(target=run, daemon=True, name="trial")
        known, since = -1, time.monotonic()
        try:
            self._thread.start()
            while time.monotonic() - since <= self.timeouts.hang and not self.done.wait(0.02):
                if known < (now := self._progress.value + self.source.served.value):
                    known, since = now, time.monotonic()
        except BaseException:  # interrupted
            self.close()
            raise
        return self.done.is_set()

    def _loop(self, make: Make) -> None:
        trial, machine = self.trial, self.machine
        given: list[Any] = [self.source]
        if trial.gpus:
            machine.thread.index = trial.gpus - 1
            given.append(machine)
        self.prefetcher = make(*given, *([] if trial.depth is None else [trial.depth]))
        if trial.set_epoch:
            self.source.served.settle(self.timeouts.settle)  # what it reads before the loop
            self.source.set_epoch(trial.set_epoch)
        for epoch in range(trial.epochs):
            try:
                self._epoch(late=epoch in trial.late)
            except DiskError as error:
                self.error = error
                self.errors += 1

    def _epoch(self, *, late: bool) -> None:
        found: list[Any] = []
        self.epochs.append(found)
        for batch in self._batches():  # enumerate() would keep a batch while it asks for the next
            found.append(self._step(batch))
            self._progress.add()
            self._pause(len(found))
            if len(found) == self.trial.leave_after:
                # only a full queue shows whether a thread waits for space
                self.ahead = self.source.served.settle(self.timeouts.settle) - len(found)
                break
            del batch
            if not late:
                found[-1] = _read(found[-1])
            if len(found) == MANY:  # an endless prefetcher counts as hung
                self.source.abandoned.wait()
                break
        found[:] = map(_read, found)

    def _batches(self) -> Iterator[Any]:
        """Iterate over the prefetcher, with the current stream that the trial asks for."""
        gpu = self.machine.current()
        loop = iter(_two_loops(self.prefetcher) if self.trial.nested else self.prefetcher)
        streams = [gpu.Stream() for _ in range(self.trial.own_streams)]
        for stream in cycle(streams or [None]):
            with gpu.stream(stream):
                try:
                    yield next(loop)
                except StopIteration:
                    return

    def _step(self, batch: Any) -> Any:
        self.nothing += batch is None
        self.structures.append(structure(batch))
        if not self.trial.gpus:
            return batch
        gpu = self.machine.current()
        place = {leaf.gpu.name for leaf in leaves(batch) if isinstance(leaf, DeviceTensor)}
        self.places.update(place)
        on_another = any(other.name in place for other in self.machine.gpus if other is not gpu)
        return math.nan if on_another else gpu.step(batch)

    def _pause(self, steps: int) -> None:
        """Give a thread real time to prefetch, because a virtual step ends before it wakes up.

        If a thread did not prefetch once, later steps do not wait for it.
        """
        ahead, all_ = self.trial.ahead, self.source.size or math.inf
        if ahead and self._patient and steps + ahead <= all_:
            tally = self.machine.copies if self.trial.gpus else self.source.served
            may = ahead <= (self.trial.depth or 1)
            seconds = self.timeouts.wake if may else self.timeouts.settle
            self._patient = tally.wait_until(steps + ahead, seconds)

    @cached_property
    def threads(self) -> list[threading.Thread]:
        """Return the threads that are still alive long after the loop."""
        end = time.monotonic() + self.timeouts.leave
        new = [thread for thread in threading.enumerate() if thread not in self._before]
        for thread in new:
            thread.join(max(0.0, end - time.monotonic()))
        return [thread for thread in new if thread.is_alive()]

    @property
    def is_open(self) -> bool:
        """Return whether the loader is still open long after the loop."""
        return not self.source.closed.wait_until(self.source.begun.value, self.timeouts.leave)

    @property
    def garbage(self) -> int:
        """Count the steps that read garbage."""
        return sum(map(math.isnan, chain(*self.epochs)))

    @property
    def wrong_epochs(self) -> int:
        """Count the epochs in which a checksum is wrong."""
        right = self.source.checksums()
        return sum(found != right for found in self.epochs)

    @property
    def kept(self) -> int:
        """Count the batches that stay in GPU memory after all work is done."""
        self.machine.gpus[0].synchronize()
        return -(-self.machine.gpus[0].memory_allocated() // BATCH_BYTES)

    @property
    def peak(self) -> int:
        """Return the largest number of batches in GPU memory at a time."""
        return -(-self.machine.gpus[0].max_memory_allocated() // BATCH_BYTES)

    @property
    def hidden(self) -> float:
        """Return the overlapped share of the copying, without the first copy."""
        spans = self.trace.spans
        first = next((span for span in spans if span.lane == "copy"), None)
        return hidden_share([span for span in spans if span is not first])


def in_torch(make: Make, **options: Any) -> Make:
    """Return a factory without devices, because `make` uses torch's own names."""
    return lambda loader, devices, *depth: make(loader, *depth, **options)


def structure(batch: Any) -> str:
    """Return a batch as text, without the values of its tensors."""
    return repr(map_leaves(lambda leaf: "tensor" if hasattr(leaf, "device") else leaf, batch))


def _two_loops(prefetcher: Iterable[Any]) -> Iterator[Any]:
    outer = iter(prefetcher)
    yield next(outer)
    yield from prefetcher
    yield from outer


def run_epoch(make: Make) -> None:
    """Run one epoch of small batches, to compare the real time of two prefetchers."""
    with closing(TrialRun(make, PrefetcherTrial())) as seen:
        assert not seen.hung


def _read(loss: Any) -> Any:
    return loss.item() if hasattr(loss, "item") and not getattr(loss, "ndim", 0) else loss


@contextmanager
def hidden_thread_tracebacks() -> Iterator[None]:
    """Hide the tracebacks of the learner's threads, because the feedback explains the error."""
    with patch.object(threading, "excepthook", lambda _: None):
        yield


def _computes(thread: threading.Thread) -> bool:
    """Return whether a thread is computing; False if the system does not provide its CPU time."""

    def spent_s() -> float:
        own = (one for one in psutil.Process().threads() if one.id == thread.native_id)
        return sum(one.user_time + one.system_time for one in own)

    try:
        before = spent_s()
        time.sleep(LOOK_S)
        return spent_s() - before > LOOK_S / 10  # other programs may use the core too
    except psutil.AccessDenied:  # usual on macOS
        return False
