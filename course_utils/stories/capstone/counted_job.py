"""A job whose time is computed: the CPU time of its processes plus their waiting time.

The job never really waits for the emulated storage or GPU, and CPU time used by other programs does
not count. A busy machine therefore gives the same figures. Each process has its own virtual clock.
The time at which a worker delivers a batch is computed from the request and the cost of the batch.

Some steps of the script really train its model, uncounted, so that a check can compare the weights.
"""

from __future__ import annotations

import gc
import pickle
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from fsspec.spec import AbstractFileSystem
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, get_worker_info

from course_utils.errors import CourseError
from course_utils.hardware.clock import HostClock, RealClock, VirtualClock
from course_utils.hardware.storage import SlowFileSystem, storage_preset
from course_utils.loading.events import read_labels
from course_utils.stories.capstone.job import MOST_WORKERS, STORAGE, Job, RecordedJob
from keepfed.loaders.workers import DEFAULT_PREFETCH
from keepfed.measure.hook import FetchMeter, end, get_listeners, listen
from keepfed.measure.hook.delay import delay_ns, has_delay
from keepfed.measure.records import Fetch, Row, Sink
from keepfed.measure.spans import Span

COUNT_EVERY = 10  # batches between two counts of the events that a worker keeps
FIRST, SHARE = 2, 0.2  # first steps of an epoch, and share of its other steps, that really train
HELD_OUT_EVENTS = 17  # one more than a batch has, and few, as no model is trained
LONGEST_PLAN = 100  # epochs of a script that ignores the plan
LONG_WAIT_NS = 5_000_000  # shorter waits outside the storage and the GPU are noise


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


class Step(NamedTuple):
    """One call of `job.compute`: what the model learned from, and what it learned."""

    events: list[int]  # IDs of the batch
    value: Any  # result of the script's function, or the checksum of a step that does not train
    seed: int = 0  # seed of the random numbers, or 0 if the function was not called
    batch: Mapping[str, Tensor] = MappingProxyType({})  # copy of the batch
    settings: Sequence[Mapping[str, Any]] = ()  # those of the optimiser, at each of its steps
    before: Tensor | None = None  # weights before and after, None if no optimiser stepped
    after: Tensor | None = None


class CountedClock(VirtualClock):
    """A virtual clock that a script cannot set back."""

    @property
    def waited(self) -> int:
        """Nanoseconds of this clock spent waiting. A script cannot set it."""
        return self._waited

    @waited.setter
    def waited(self, value: int) -> None:
        if value < getattr(self, "_waited", 0):
            raise CourseError("The script sets the clock of the job back. Remove this line.")
        self._waited = value

    def _exclude(self, ns: int) -> None:
        """Take back CPU time that does not belong to the script."""
        self._waited -= ns


class _Stopwatch:
    """Measures for how long this thread is blocked, without the time in which it lacks a core."""

    def __init__(self) -> None:
        self.start = time.perf_counter_ns(), time.thread_time_ns(), delay_ns()

    def blocked_ns(self) -> int:
        """Return the time blocked since the start, or 0 if it is short or not known."""
        wall, cpu, delay = self.start
        blocked = time.perf_counter_ns() - wall - (time.thread_time_ns() - cpu)
        blocked -= delay_ns() - delay
        return blocked if has_delay() and blocked > LONG_WAIT_NS else 0


class CountedJob(RecordedJob):
    """A recorded job that takes only the CPU time of its processes."""

    clock: CountedClock
    storage: CountedStorage

    def __init__(self, folder: str | Path, *, seconds: float):
        """Use other events than `timed_job`, and stop after `seconds` of real time."""
        storage = CountedStorage(str(folder), STORAGE)
        super().__init__(folder, storage, first=1100, seconds=seconds)
        self.plan = ["masked", "direction", "masked"]  # a task and an order may come again
        first = self.training[-1] + 1
        self.held_out = [*range(first, first + HELD_OUT_EVENTS)]
        ids = read_labels(folder).event_id
        self.training_ids, self._held_out_ids = {*ids[self.training].tolist()}, ids[self.held_out]
        self.clock = CountedClock(storage)
        self.gpu = self._make_gpu()
        self.boot_s: float | None = None  # start-up time of the first workers
        self.workers = 0  # workers of the latest loader
        self.steps = [list[Step]() for _ in range(LONGEST_PLAN)]  # on training events, by epoch
        self.looks = [list[Step]() for _ in range(LONGEST_PLAN)]  # on held-out events, by epoch
        self.noted: list[
            tuple[str, list[float], list[float]]
        ] = []  # task and losses of each job.note
        self.seen_events = defaultdict[int, list[SeenEvent]](list)  # by event ID
        self._delivered_before = -1  # bytes that the script read before its first epoch
        self._choice, self._taken = random.Random(13), 0  # steps that really train
        self._codes = set[Any]()  # functions of the steps
        self._excused_ns = 0  # blocked time that does not belong to the script
        sink = CostSink(storage)
        self._meter = FetchMeter(sink, clock=sink.now)

    def run(self, train: Callable[[Job], None]) -> None:
        """Run and record the training. The time limit includes the code before the loop."""
        _import_optimisers()
        with one_thread():
            self._until, self._began = time.monotonic() + self._seconds, _Stopwatch()
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
        if self._delivered_before < 0:
            self._delivered_before = self.storage.delivered_bytes
            self.clock.waited += max(0, self._began.blocked_ns() - self._excused_ns)
        if loader.num_workers:
            with self._uncounted():
                _require_picklable(loader.dataset, loader.collate_fn, loader.worker_init_fn)
        if self._meter not in get_listeners(loader):
            loader._iterator = None  # workers that were started before report no costs
        batches = listen(loader, [self._meter])
        self.workers = loader.num_workers
        self._ahead = ahead = self.workers * (loader.prefetch_factor or DEFAULT_PREFETCH)
        keeps = defaultdict[int, int](int)  # events kept, by worker
        asked, free, boot = [self.clock()] * ahead, defaultdict[int, int](int), 0
        source = iter(batches)
        try:
            while True:
                began, watch = self.clock(), _Stopwatch()
                try:
                    batch = next(source)
                except StopIteration:
                    break
                if not loader.num_workers:
                    self.clock.waited += watch.blocked_ns()
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
                watch, self._excused_ns = _Stopwatch(), 0
                yield batch
                del batch
                self.clock.waited += max(0, watch.blocked_ns() - self._excused_ns)
        finally:
            self.boot_s = boot / 1e9 if self.boot_s is None else self.boot_s
            if self.late:
                end(batches, orderly=False)

    @property
    def delivered_bytes(self) -> int:
        """Number of bytes that all processes have read from the storage since the first epoch."""
        return self.storage.delivered_bytes - max(0, self._delivered_before)

    def upload(self, batch: Any) -> Any:
        """Copy the tensors of a batch to the emulated GPU, without counting the emulation."""
        with self._uncounted():
            return super().upload(batch)

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call `function` uncounted, keep the GPU busy for one step, and record the step.

        Steps on held-out events take no time, because this job does not measure the evaluation.
        """
        start, epoch = time.monotonic(), min(max(len(self.epochs), 1), LONGEST_PLAN) - 1
        with self._uncounted():
            batch = _content_of(given[-1])
            events = batch["event_id"].tolist()
            is_held_out = np.isin(events, self._held_out_ids).all()
            done, step = len(self.steps[epoch]), Step(events, None)
            code = getattr(function, "__code__", type(function))
            is_sampled = done < FIRST or self._choice.random() < SHARE or code not in self._codes
            self._codes.add(code)
            if is_held_out or is_sampled:
                step = self._take(function, given[:-1], batch)
        self._until += time.monotonic() - start if self._until else 0
        if is_held_out and not step.settings:
            self.looks[epoch].append(step)
            return step.value
        checksum = super().compute(function, *given)
        with self._uncounted():
            self._record_events(batch)
            self.steps[epoch].append(step if step.seed else step._replace(value=checksum))
            return self.steps[epoch][-1].value

    def note(self, task: str, losses: Sequence[Any], seen: Sequence[Any]) -> None:
        """Record what the script reports of an epoch."""
        with self._uncounted():
            self.noted.append((task, [*map(float, losses)], [*map(float, seen)]))

    def _take(
        self, function: Callable[..., Any], given: Sequence[Any], batch: dict[str, Tensor]
    ) -> Step:
        """Call the function of a step, and record what it does to the weights."""
        stepped, settings, before = list[Optimizer](), list[dict[str, Any]](), list[Tensor]()

        def record(optimiser: Optimizer, *_: Any) -> None:
            stepped.append(optimiser)
            group = optimiser.param_groups[0]
            settings.append({name: value for name, value in group.items() if name != "params"})
            before.append(_weights(optimiser))

        self._taken += 1
        hook = register_optimizer_step_pre_hook(record)
        try:
            with torch.random.fork_rng([]):
                torch.default_generator.manual_seed(self._taken)
                value = function(*given, {name: one.clone() for name, one in batch.items()})
        finally:
            hook.remove()
        value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        weights = (before[0], _weights(stepped[0])) if stepped else (None, None)
        copy = {name: one.clone() for name, one in batch.items()}
        return Step(copy["event_id"].tolist(), value, self._taken, copy, settings, *weights)

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
        before, watch = time.process_time_ns(), _Stopwatch()
        yield
        self.clock._exclude(time.process_time_ns() - before)
        self._excused_ns += watch.blocked_ns()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, because threads that wait for each other also take CPU time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _import_optimisers() -> None:
    """Take the first step of a process, which imports seconds of code."""
    weight = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.AdamW([weight])
    weight.sum().backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _weights(optimiser: Optimizer) -> Tensor:
    """Return a copy of the parameters that an optimiser changes, as one vector."""
    every = [one for group in optimiser.param_groups for one in group["params"]]
    return torch.cat([one.detach().flatten() for one in every])


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
        self.clock: CountedClock | None = None  # set in workers only

    def now(self) -> int:
        """Return the time of this worker in ns; 0 in the main process, which has its own clock."""
        return self.clock() if self.clock else 0

    def worker_started(self, worker_id: int) -> None:
        """Start counting in this worker."""
        self.boot, self.clock = time.process_time_ns(), CountedClock(self.storage)
        self.before_ns = self.now()

    def wants(self, index: Any) -> bool:
        """Return whether this process is a worker."""
        self.watch = _Stopwatch()
        return self.clock is not None

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Attach the cost of everything since the previous fetch to the batch."""
        self.batches += 1
        keeps = None if self.batches % COUNT_EVERY else _events_in_memory()
        took = fetch.ended_ns - self.before_ns + self.watch.blocked_ns()
        costed = CostedBatch(batch, fetch.worker, took, self.boot, keeps)
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

    def __init__(self, root: str, preset: str, delivered: Tensor | None = None):
        """Serve the files under `root`, and count the bytes in `delivered`, by process."""
        AbstractFileSystem.__init__(self)
        self.preset, self.root = storage_preset(preset), Path(root)
        if delivered is None:
            delivered = torch.zeros(MOST_WORKERS + 1, dtype=torch.int64)
            delivered.share_memory_()  # type: ignore[no-untyped-call]
        self.device = _Meter(preset, delivered)

    def __reduce__(self) -> Any:
        """Attach to the same counter in a worker that is not forked."""
        return CountedStorage, (str(self.root), self.preset.name, self.device.delivered)

    @property
    def clock(self) -> HostClock:
        """Clock of the reads in this process. A script cannot exchange it."""
        clock: HostClock = self.device.clock
        return clock

    @clock.setter
    def clock(self, clock: HostClock) -> None:
        if not isinstance(clock, VirtualClock):
            raise CourseError("The script exchanges the clock of the storage. Remove this line.")
        self.device.clock = clock

    @property
    def delivered_bytes(self) -> int:
        """Number of bytes that all processes have read from this storage."""
        return int(self.device.delivered.sum())


class _Meter:
    """Computes the time of a request in ns, and waits on the clock of this process."""

    def __init__(self, preset: str, delivered: Tensor):
        self._preset, self.delivered = storage_preset(preset), delivered
        self.clock: HostClock = RealClock()
        self._ends: deque[int] = deque(maxlen=self._preset.requests_at_once)

    def look_up(self, *, opening: bool) -> None:
        self.wait(round(1e6 * self._preset.open_ms))

    def reserve(self, file: int, start: int, stop: int, **_: int) -> int:
        worker = get_worker_info()
        self.delivered[worker.id + 1 if worker else 0] += stop - start
        goes_on = self._preset.readahead and hash((file, start)) in self._ends
        self._ends.append(hash((file, stop)))
        latency = 0.0 if goes_on else 1e6 * self._preset.request_ms
        return round(latency + 1e3 * (stop - start) / self._preset.stream_mb_s)

    def wait(self, lasting: int) -> None:
        self.clock.sleep_until(self.clock() + lasting)
