"""Try a prefetcher: loop over it as a training does, and write down all that can be seen.

Nothing depends on how fast this machine is: real time only limits how long something that hangs, or
a thread that may do too much, is waited for.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any
from unittest.mock import patch

import psutil

from course_stories.prefetchers.bench import (
    BATCH_BYTES,
    MANY,
    BenchMachine,
    BenchSource,
    Tally,
    make_tensors,
)
from course_utils.hardware.gpu import leaves
from keepfed.measure.spans import hidden_share
from keepfed.measure.trace import record

# called with the loader, then the GPUs if there are any, then the depth if it is told
Make = Callable[..., Iterable[Any]]


@dataclass(frozen=True)
class Patience:
    """How long is waited, in seconds; a right prefetcher needs milliseconds."""

    hang: float = 5.0  # without any progress, until a loop counts as hung
    wake: float = 2.0  # by then, a thread that works beside the loop has woken up
    settle: float = 0.1  # by then, a thread that does too much has done more
    leave: float = 2.0  # by then, a thread that nobody listens to any more has ended


PATIENCE = Patience()
LOOK_S = 0.3  # at a thread: the system counts its time in steps of 10 ms


@dataclass(frozen=True)
class PrefetcherTrial:
    """What a prefetcher is given, and what the loop over it does."""

    batches: Callable[[], Sequence[Any] | None] = make_tensors  # None: numbers without end
    pinned: bool = True
    fails_at: int | None = None  # the batch in whose place the loader raises
    gpus: int = 1  # of the machine, the last is current; 0: the prefetcher knows no device
    depth: int | None = None  # None: the prefetcher is not told
    set_epoch: int = 0  # chosen after the prefetcher was made
    epochs: int = 1
    late: Collection[int] = ()  # the epochs whose losses are read at their end
    own_stream: bool = False  # each epoch works on a stream that it made
    keep: bool = False  # the loop keeps its batches
    ahead: int = 0  # in each step a thread gets the time to load so many more
    leave_after: int | None = None  # batches, then break
    slow: bool = False  # in each step a thread gets the time to do all that it may
    timed: bool = False  # the overlap is measured


class Seen:
    """What is seen of a loop over a prefetcher, which runs at once, in a thread.

    with closing(Seen(make, trial)) as seen:
        print(seen.ending)
    """

    def __init__(self, make: Make, trial: PrefetcherTrial, patience: Patience | None = None):
        self.trial, self.patience = trial, patience or PATIENCE
        self.source = BenchSource(trial.batches(), fails_at=trial.fails_at, pinned=trial.pinned)
        self.machine = BenchMachine(max(1, trial.gpus))
        self.prefetcher: Iterable[Any] = ()
        self.epochs: list[list[Any]] = []  # items; with a device, what the steps read: NaN: garbage
        self.batches: list[Any] = []  # if they are kept
        self.places: set[str] = set()  # devices of the batches
        self.nothing = 0  # times that the loop got None
        self.early = 0  # batches loaded before the loop
        self.ahead = 0  # batches loaded at the break that the loop did not get
        self.hidden = math.nan  # share of the copying, the first copy left out
        self.error: BaseException | None = None  # what the loop got
        self.leaving = False  # it came to its break
        self._progress, self._patient = Tally(), True
        self._done = threading.Event()  # after a join that was interrupted, is_alive() is wrong
        self._before = set(threading.enumerate())
        with warnings.catch_warnings(record=True, action="always") as said:
            self.hung = not self._ends(make)
        self.warnings = len(said)
        self.found = self.epochs[0] if self.epochs else []  # what the first epoch gave
        self.wanted = self.source.size  # batches in an epoch
        self.counts = list(map(len, self.epochs))
        self.count = sum(self.counts)
        self.said = "" if self.error is None else f"{type(self.error).__name__}: {self.error}"

    def close(self) -> None:
        """End a source without end, whoever reads it, and a loop that computes for ever."""
        self.source.abandoned.set()
        # One that waits is left asleep: it would not hear of it, and Python 3.11 cannot trace any
        # thread before it has. An `except Exception` lets SystemExit through.
        if not self._done.is_set() and _computes(self._thread):
            ident, end = ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, end)

    def _ends(self, make: Make) -> bool:
        """Loop, and tell whether that came to an end."""

        def run() -> None:
            try:
                self._loop(make)
            except BaseException as error:
                self.error = error
            finally:
                self._done.set()

        self._thread = threading.Thread(target=run, daemon=True, name="trial")
        known, since = -1, time.monotonic()
        try:
            self._thread.start()
            while time.monotonic() - since <= self.patience.hang and not self._done.wait(0.02):
                if known < (now := self._progress.value + self.source.served.value):
                    known, since = now, time.monotonic()
        except BaseException:  # interrupted
            self.close()
            raise
        return self._done.is_set()

    def _loop(self, make: Make) -> None:
        trial, machine = self.trial, self.machine
        given: list[Any] = [self.source]
        if trial.gpus:
            machine.set_device(trial.gpus - 1)
            given.append(machine)
        self.prefetcher = make(*given, *([] if trial.depth is None else [trial.depth]))
        if trial.set_epoch:
            self.early = self.source.served.settle(self.patience.settle)
            self.source.set_epoch(trial.set_epoch)
        watch = record(clock=machine.clock) if trial.timed else nullcontext()
        with watch as trace:
            for epoch in range(trial.epochs):
                stream = machine.current().Stream() if trial.own_stream else None
                with machine.current().stream(stream):
                    self._epoch(late=epoch in trial.late)
        if trace is not None:
            spans = trace.spans
            first = next((span for span in spans if span.lane == "copy"), None)
            self.hidden = hidden_share([span for span in spans if span is not first])

    def _epoch(self, *, late: bool) -> None:
        found: list[Any] = []
        self.epochs.append(found)
        for batch in self.prefetcher:  # enumerate() would keep a batch while it asks for the next
            found.append(self._step(batch))
            self._progress.add()
            self._pause(len(found))
            if self.trial.slow:
                time.sleep(self.patience.settle)
            if len(found) == self.trial.leave_after:
                # only when all is full does a thread show whether it waits for room
                self.ahead = self.source.served.settle(self.patience.settle) - len(found)
                self.leaving = True
                break
            del batch
            if not late:
                found[-1] = _read(found[-1])
            if len(found) == MANY:  # it gives more and more: that is no end either
                self.source.abandoned.wait()
                break
        found[:] = map(_read, found)

    def _step(self, batch: Any) -> Any:
        self.nothing += batch is None
        if self.trial.keep:
            self.batches.append(batch)
        if not self.trial.gpus:
            return batch
        gpu = self.machine.current()
        place = {str(leaf.device) for leaf in leaves(batch) if hasattr(leaf, "device")}
        self.places.update(place)
        on_another = any(other.name in place for other in self.machine.gpus if other is not gpu)
        return math.nan if on_another else gpu.step(batch)

    def _pause(self, steps: int) -> None:
        """Leave a thread the real time to load ahead: a virtual step is over before it wakes up.

        Who once does not, never will: from then on there is no waiting.
        """
        ahead, all_ = self.trial.ahead, self.source.size or math.inf
        if ahead and self._patient and steps + ahead <= all_:
            tally = self.machine.copies if self.trial.gpus else self.source.served
            may = ahead <= (self.trial.depth or 1)
            seconds = self.patience.wake if may else self.patience.settle
            self._patient = tally.wait_until(steps + ahead, seconds)

    @cached_property
    def threads(self) -> list[threading.Thread]:
        """Return the threads that are there long after the loop."""
        end = time.monotonic() + self.patience.leave
        new = [thread for thread in threading.enumerate() if thread not in self._before]
        for thread in new:
            thread.join(max(0.0, end - time.monotonic()))
        return [thread for thread in new if thread.is_alive()]

    @property
    def busy(self) -> str:
        """Say what such a thread does."""
        served = self.source.served
        through = served.value >= MANY  # the source is silent from there on
        goes_on = through or served.wait_until(served.value + 1, self.patience.settle)
        return "loading on" if goes_on else "waiting for room in a queue that nobody empties"

    @property
    def is_open(self) -> bool:
        """Tell whether the loader is still open long after the loop."""
        return not self.source.closed.wait_until(self.source.begun.value, self.patience.leave)

    @property
    def garbage(self) -> int:
        """Count the steps that read garbage."""
        return sum(map(math.isnan, chain(*self.epochs)))

    @property
    def spoilt(self) -> int:
        """Count the epochs in which a checksum is wrong."""
        right = self.source.checksums()
        return sum(found != right for found in self.epochs)

    @property
    def kept(self) -> int:
        """Count the batches in the memory of the GPU once it has done its work."""
        self.machine.gpus[0].synchronize()
        return -(-self.machine.gpus[0].memory_allocated() // BATCH_BYTES)

    @property
    def peak(self) -> int:
        """Count the batches that were in the memory of the GPU at a time."""
        return -(-self.machine.gpus[0].max_memory_allocated() // BATCH_BYTES)

    @property
    def ending(self) -> str:
        """Say in a few words how it went."""
        end = "it hangs" if self.hung else self.said
        return f"{self.count} batches" + (f", then {end}" if end else "")


def _read(loss: Any) -> Any:
    return loss.item() if hasattr(loss, "item") and not getattr(loss, "ndim", 0) else loss


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Keep the tracebacks of the learner's threads from the page: the verdict says what to do."""
    with patch.object(threading, "excepthook", lambda _: None):
        yield


def _computes(thread: threading.Thread) -> bool:
    """Tell whether a thread computes, and does not wait; no, where the system does not tell."""

    def spent_s() -> float:
        own = (one for one in psutil.Process().threads() if one.id == thread.native_id)
        return sum(one.user_time + one.system_time for one in own)

    try:
        before = spent_s()
        time.sleep(LOOK_S)
        return spent_s() - before > LOOK_S / 10  # beside other programs it gets less than a core
    except psutil.AccessDenied:  # macOS tells it to few
        return False
