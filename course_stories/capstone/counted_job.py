"""A job whose time is computed: the CPU time of its processes plus emulated waiting time.

The job never really waits for the emulated storage or GPU, and CPU time used by other programs does
not count. A busy machine therefore gives the same figures. Each process has its own virtual clock.
The time at which a worker delivers a batch is computed from the request and the cost of the batch.
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
from keepfed.measure.hook import FetchMeter, Sink, end, get_listeners, listen
from keepfed.measure.records import Fetch, Row
from keepfed.measure.spans import Span

COUNT_EVERY = 10  # batches between two counts of the events that a worker keeps
FIRST_STEPS = 2  # steps per epoch that are copied for the check


class CostedBatch(NamedTuple):
    """A batch and its cost in the worker that loaded it, in nanoseconds."""

    batch: Any
    worker: int
    took: int
    boot: int  # start-up before it: Python and the imports
    keeps: int | None  # events in the worker's memory, or None if they were not counted


class SeenEvent(NamedTuple):
    """One event as the model saw it: features and sensors of its pulses, and its direction."""

    features: NDArray[np.float32]
    sensors: NDArray[np.int64]
    direction: NDArray[np.float32]


class FirstStep(NamedTuple):
    """One of the first steps of an epoch: the function, and copies of its arguments."""

    function: Callable[..., Any]
    given: tuple[Any, ...]  # without the batch
    batch: dict[str, Tensor]


class CountedJob(RecordedJob):
    """A recorded job that takes only the CPU time of its processes."""

    clock: VirtualClock

    def __init__(self, folder: str | Path, *, seconds: float):
        """Use other events than `timed_job`, and stop after `seconds` of real time."""
        storage = CountedStorage(str(folder), STORAGE)
        super().__init__(folder, storage, first=1100, seconds=seconds)
        self.plan = ["masked", "direction"]
        self.held_out = [
            self.training[-1] + 1,
            self.training[-1] + 2,
        ]  # few, as no model is trained
        self._held_out_ids = read_labels(folder).event_id[self.held_out]
        self.clock = VirtualClock(storage)
        self.gpu = self._make_gpu()
        self.boot_s: float | None = None  # start-up time of the first workers
        self.first_steps = [list[FirstStep]() for _ in self.plan]
        self.steps_without_optimiser = 0  # steps that received no optimiser
        self.noted: list[tuple[str, bool]] = []  # for each epoch: task, whether it had losses
        self.seen_events = defaultdict[int, list[SeenEvent]](list)  # by event ID
        sink = CostSink(storage)
        self._meter = FetchMeter(sink, clock=sink.now)

    def run(self, train: Callable[[Job], None]) -> None:
        """Run and record the training. The time limit includes the code before the loop."""
        self._until = time.monotonic() + self._seconds
        super().run(train)

    def _received(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield each batch at the virtual time at which its worker delivers it."""
        if not isinstance(loader, DataLoader):
            raise CourseError(
                "job.follow did not receive a DataLoader, so it cannot count the work of the "
                "workers. Pass the DataLoader itself, and put wrappers around job.follow(loader)."
            )
        if self.late:  # the workers of an epoch that ended early are gone
            return
        if loader.num_workers:
            with self._uncounted():
                _require_picklable(loader.dataset, loader.collate_fn, loader.worker_init_fn)
        if self._meter not in get_listeners(loader):
            loader._iterator = None  # workers that were started before report no costs
        batches = listen(loader, [self._meter])
        self._ahead = ahead = loader.num_workers * (loader.prefetch_factor or DEFAULT_PREFETCH)
        keeps = defaultdict[int, int](int)  # events kept, by worker
        asked, free, boot = [self.clock()] * ahead, defaultdict[int, int](int), 0
        try:
            for batch in batches:
                began = self.clock()
                if isinstance(batch, CostedBatch):
                    costed, boot = batch, max(boot, batch.boot)
                    begun = max(free[costed.worker], asked[-ahead])
                    free[costed.worker] = begun + costed.boot + costed.took
                    self.clock.sleep_until(free[costed.worker])
                    if costed.keeps is not None:
                        keeps[costed.worker] = costed.keeps
                        self.held = max(self.held, sum(keeps.values()))
                    batch = costed.batch
                    del costed
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
        """Copy the tensors of a batch to the emulated GPU, without counting the emulation."""
        with self._uncounted():
            return super().upload(batch)

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Keep the GPU busy for one step, and record the events of the step.

        Steps on held-out events take no time, because this job does not measure the model.
        """
        has_optimiser = any(isinstance(one, Optimizer) for one in given)
        with self._uncounted():
            batch = _content_of(given[-1])
            if not has_optimiser and np.isin(batch["event_id"], self._held_out_ids).all():
                return 0.0
        found = super().compute(function, *given)
        self.steps_without_optimiser += not has_optimiser
        with self._uncounted():
            self._record_events(batch)
            firsts = self.first_steps[min(len(self.epochs), len(self.plan)) - 1]
            if len(firsts) < FIRST_STEPS:
                firsts.append(FirstStep(*deepcopy((function, given[:-1], batch))))
        return found

    def note(self, task: str, losses: Sequence[Any], seen: Sequence[Any]) -> None:
        """Record that the script reported an epoch."""
        self.noted.append((task, len(losses) > 0))

    def _record_events(self, batch: dict[str, Tensor]) -> None:
        for event, mask, features, sensor, direction in zip(*batch.values(), strict=True):
            seen = SeenEvent(features[mask].numpy(), sensor[mask].numpy(), direction.numpy().copy())
            self.seen_events[int(event)].append(seen)

    def _register_batch(self, batch: Any) -> None:
        with self._uncounted():
            super()._register_batch(batch)
            # the GPU takes no real time, so workers may prefetch less than in a real run
            self.held = max(self.held, min(self._ahead * max(self.sizes), len(self.training)))

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Exclude the CPU time of this block, because it does not belong to the script."""
        before = time.process_time_ns()
        yield
        self.clock.waited -= time.process_time_ns() - before


def _require_picklable(*things: Any) -> None:
    """Raise an error if a worker that is not forked cannot receive these objects."""
    try:
        pickle.dumps(things)
    except RuntimeError:  # locks shared by workers can be pickled only while a process starts
        pass
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise CourseError(
            f"Your dataset or one of your functions cannot be pickled: {error}. Workers that are "
            "not forked receive a pickled copy. Use functions and classes defined at module level."
        ) from None


def _content_of(batch: Any) -> dict[str, Tensor]:
    """Return the tensors that a step learns from, in the order of a `SeenEvent`."""
    names = "event_id", "mask", "features", "sensor", "direction"
    try:
        return {name: batch[name].content.data for name in names}
    except (AttributeError, KeyError, TypeError):
        raise CourseError(
            f"job.compute received a batch that lacks one of {', '.join(names)}, or that is not on "
            "the GPU. Pass the unchanged batch of the loader to job.upload, and the result of "
            "job.upload to job.compute."
        ) from None


class CostSink(Sink):
    """Attaches to each batch its cost in the worker."""

    def __init__(self, storage: SlowFileSystem):
        """Count the time that a worker waits for `storage`."""
        self.storage, self.batches = storage, 0
        self.clock: VirtualClock | None = None  # set in workers only

    def now(self) -> int:
        """Return the time of this worker in ns; 0 in the main process, which has its own clock."""
        return self.clock() if self.clock else 0

    def worker_started(self, worker_id: int) -> None:
        """Start counting in this worker."""
        self.boot, self.clock = time.process_time_ns(), VirtualClock(self.storage)
        self.before_ns = self.now()

    def wants(self, index: Any) -> bool:
        """Return whether this process is a worker."""
        return self.clock is not None

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Attach the cost of everything since the previous fetch to the batch."""
        self.batches += 1
        keeps = None if self.batches % COUNT_EVERY else _events_in_memory()
        costed = CostedBatch(batch, fetch.worker, fetch.ended_ns - self.before_ns, self.boot, keeps)
        self.before_ns, self.boot = self.now(), 0  # counting the events is not charged
        return costed


def _events_in_memory() -> int:
    """Count the events whose sample or tokens this process keeps in memory."""
    dicts = (one for one in gc.get_objects() if type(one) is dict)
    found = (one.get("event_id") for one in dicts)
    return len({one for one in found if isinstance(one, int | np.integer)})


class CountedStorage(SlowFileSystem):
    """Local files with the latencies of a preset, without queueing between processes."""

    protocol = "counted"
    device: Any

    def __init__(self, root: str, preset: str):
        """Serve the files under `root`."""
        AbstractFileSystem.__init__(self)
        self.preset, self.root = storage_preset(preset), Path(root)
        self.device = _Meter(self)


class _Meter:
    """Computes the time of a request in ns, and waits on the clock of this process."""

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
