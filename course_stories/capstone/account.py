"""A job whose time is counted, not measured: what its processes compute, and what they would wait.

Nobody waits for the emulated storage or GPU, and what other programs take from the processor does
not count, so a busy machine gives the same figures. Each process has such a clock of its own. When
a worker could have delivered a batch follows from when it was asked, and how long it took.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fsspec.spec import AbstractFileSystem
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from course_stories.capstone.job import STORAGE, Job, RecordedJob
from course_utils.errors import CourseError
from course_utils.hardware.clock import HostClock, RealClock, VirtualClock
from course_utils.hardware.storage import SlowFileSystem, storage_preset
from course_utils.loading.events import read_labels
from keepfed.loaders.workers import DEFAULT_PREFETCH
from keepfed.measure.hook import FetchMeter, Sink, end, listen, listeners_of
from keepfed.measure.records import Fetch, Row
from keepfed.measure.spans import Span

LOOKS_AFTER = 10  # batches, a worker for what it keeps
FIRST = 2  # steps of each epoch are looked at


class Made(NamedTuple):
    """A batch, and what it cost the worker that made it, in nanoseconds."""

    batch: Any
    worker: int
    took: int
    boot: int  # before it, to start: Python, and what it imports
    keeps: int | None  # how many events are in the memory of the worker; not told each time


class Lesson(NamedTuple):
    """What the model learnt of an event: features and sensors of its pulses, and its direction."""

    features: NDArray[np.float32]
    sensors: NDArray[np.int64]
    direction: NDArray[np.float32]


class FirstStep(NamedTuple):
    """One of the first steps of an epoch: what was called, and copies of what it was given."""

    function: Callable[..., Any]
    given: tuple[Any, ...]  # without the batch
    batch: dict[str, Tensor]


class CountedJob(RecordedJob):
    """A recorded job that takes no longer than its processes compute."""

    clock: VirtualClock

    def __init__(self, folder: str | Path, *, seconds: float):
        """Take events that `timed_job` has not; after `seconds` of real time it ends early."""
        storage = CountedStorage(str(folder), STORAGE)
        super().__init__(folder, storage, first=1100, seconds=seconds)
        self.plan = ["masked", "direction"]
        self.held_out = [self.training[-1] + 1, self.training[-1] + 2]  # nothing is to be learnt
        self._held_out_ids = read_labels(folder).event_id[self.held_out]
        self.clock = VirtualClock(storage)
        self.gpu = self._make_gpu()
        self.boot_s: float | None = None  # what the first workers took to start
        self.first_steps = [list[FirstStep]() for _ in self.plan]
        self.untaught = 0  # steps that are given no optimiser
        self.noted: list[tuple[str, bool]] = []  # the task of each epoch, and were there losses?
        self.learnt = defaultdict[int, list[Lesson]](list)  # by the number of the event
        account = Account(storage)
        self._meter = FetchMeter(account, clock=account.now)

    def run(self, train: Callable[[Job], None]) -> None:
        """Run the training and record it; what comes before the loop takes of the time too."""
        self._until = time.monotonic() + self._seconds
        super().run(train)

    def _received(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches, each when its worker could have delivered it."""
        if not isinstance(loader, DataLoader):
            raise CourseError(
                "job.follow counts what the workers of a DataLoader do: give it the loader itself. "
                "What goes around a loader can go around job.follow(loader)."
            )
        if self.late:  # the workers of an epoch that ended early are gone
            return
        if loader.num_workers:
            with self._free_of_charge():
                _expect_to_travel(loader.dataset, loader.collate_fn, loader.worker_init_fn)
        if self._meter not in listeners_of(loader):
            loader._iterator = None  # workers that were started before tell no costs
        batches = listen(loader, [self._meter])
        self._ahead = ahead = loader.num_workers * (loader.prefetch_factor or DEFAULT_PREFETCH)
        keeps = defaultdict[int, int](int)  # events, in each worker
        asked, free, boot = [self.clock()] * ahead, defaultdict[int, int](int), 0
        try:
            for batch in batches:
                began = self.clock()
                if isinstance(batch, Made):
                    made, boot = batch, max(boot, batch.boot)
                    begun = max(free[made.worker], asked[-ahead])
                    free[made.worker] = begun + made.boot + made.took
                    self.clock.sleep_until(free[made.worker])
                    if made.keeps is not None:
                        keeps[made.worker] = made.keeps
                        self.held = max(self.held, sum(keeps.values()))
                    batch = made.batch
                    del made
                asked.append(self.clock())
                self.trace.add(Span("main", "wait", began, asked[-1], self.trace.served))
                self.trace.batch = self.trace.served
                self.trace.served += 1
                yield batch
                del batch
        finally:
            self.boot_s = boot / 1e9 if self.boot_s is None else self.boot_s
            if self.late:
                end(batches, orderly=False)

    def upload(self, batch: Any) -> Any:
        """Copy the tensors of a batch to the emulated GPU; to emulate it counts nothing."""
        with self._free_of_charge():
            return super().upload(batch)

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Let the GPU be busy for a step, and note what it learns.

        To look at what is held out takes no time: how well the model does is not the question here.
        """
        taught = any(isinstance(one, Optimizer) for one in given)
        with self._free_of_charge():
            batch = _content_of(given[-1])
            if not taught and np.isin(batch["event_id"], self._held_out_ids).all():
                return 0.0
        found = super().compute(function, *given)
        self.untaught += not taught
        with self._free_of_charge():
            self._note_learnt(batch)
            firsts = self.first_steps[min(len(self.epochs), len(self.plan)) - 1]
            if len(firsts) < FIRST:
                firsts.append(FirstStep(*deepcopy((function, given[:-1], batch))))
        return found

    def note(self, task: str, losses: Sequence[Any], seen: Sequence[Any]) -> None:
        """Note that it was noted how an epoch went."""
        self.noted.append((task, len(losses) > 0))

    def _note_learnt(self, batch: dict[str, Tensor]) -> None:
        for event, mask, features, sensor, direction in zip(*batch.values(), strict=True):
            lesson = Lesson(features[mask].numpy(), sensor[mask].numpy(), direction.numpy().copy())
            self.learnt[int(event)].append(lesson)

    def _weigh(self, batch: Any) -> None:
        with self._free_of_charge():
            super()._weigh(batch)
            # nobody waits for the GPU here, so workers may not get as far ahead as they would
            self.held = max(self.held, min(self._ahead * max(self.sizes), len(self.training)))

    @contextmanager
    def _free_of_charge(self) -> Iterator[None]:
        """Count nothing that this process computes inside: it is not the script's."""
        before = time.process_time_ns()
        yield
        self.clock.waited -= time.process_time_ns() - before


def _expect_to_travel(*things: Any) -> None:
    """Refuse what no worker can get that is not forked."""
    try:
        pickle.dumps(things)
    except RuntimeError:  # a lock that workers share is one for those who start them
        pass
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise CourseError(
            f"Workers that are not forked get a pickled copy, and of yours there is none: {error}. "
            "Give them what has a name in the script: def and class, outside of any function."
        ) from None


def _content_of(batch: Any) -> dict[str, Tensor]:
    """Return the tensors of which a step learns, in the order of a `Lesson`."""
    names = "event_id", "mask", "features", "sensor", "direction"
    try:
        return {name: batch[name].content.data for name in names}
    except (AttributeError, KeyError, TypeError):
        raise CourseError(
            f"A step learns from a batch without {', '.join(names)}, or from one that is not on "
            "the GPU: hand job.compute what job.upload returns, and job.upload the batch as the "
            "loader made it."
        ) from None


class Account(Sink):
    """Tells with each batch what it cost the worker."""

    def __init__(self, storage: SlowFileSystem):
        """Count what a worker waits for `storage`."""
        self.storage, self.made = storage, 0
        self.clock: VirtualClock | None = None  # of a worker

    def now(self) -> int:
        """Return the time of this worker, in ns; 0 in the main process, which pays itself."""
        return self.clock() if self.clock else 0

    def worker_started(self, worker_id: int) -> None:
        """Begin to count in this worker."""
        self.boot, self.clock = time.process_time_ns(), VirtualClock(self.storage)
        self.before_ns = self.now()

    def wants(self, index: Any) -> bool:
        """Return whether a worker fetches."""
        return self.clock is not None

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Send the cost along: of the fetch, and of all since the one before it."""
        self.made += 1
        keeps = None if self.made % LOOKS_AFTER else _events_in_memory()
        made = Made(batch, fetch.worker, fetch.ended_ns - self.before_ns, self.boot, keeps)
        self.before_ns, self.boot = self.now(), 0  # to look costs the worker nothing
        return made


def _events_in_memory() -> int:
    """Count the events of which this process has the sample or the tokens."""
    dicts = (one for one in gc.get_objects() if type(one) is dict)
    found = (one.get("event_id") for one in dicts)
    return len({one for one in found if isinstance(one, int | np.integer)})


class CountedStorage(SlowFileSystem):
    """Local files with the latencies of a preset, for each process alone: nobody queues."""

    protocol = "counted"
    device: Any

    def __init__(self, root: str, preset: str):
        """Take what lies under `root`."""
        AbstractFileSystem.__init__(self)
        self.preset, self.root = storage_preset(preset), Path(root)
        self.device = _Meter(self)


class _Meter:
    """Says how long a request takes, in ns, and waits so long by the clock of this process."""

    def __init__(self, storage: CountedStorage):
        self.preset = storage.preset
        self.clock: HostClock = RealClock()
        self._ends: deque[int] = deque(maxlen=self.preset.requests_at_once)

    def look_up(self, *, opening: bool) -> None:
        self.wait(round(1e6 * self.preset.open_ms))

    def reserve(self, file: int, start: int, stop: int, **_: int) -> int:
        goes_on = self.preset.readahead and hash((file, start)) in self._ends
        self._ends.append(hash((file, stop)))
        latency = 0.0 if goes_on else 1e6 * self.preset.request_ms
        return round(latency + 1e3 * (stop - start) / self.preset.stream_mb_s)

    def wait(self, lasting: int) -> None:
        self.clock.sleep_until(self.clock() + lasting)
