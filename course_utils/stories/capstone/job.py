"""The job that a training script runs in: events, storage, GPU, tasks and a time limit.

    job = Job(data_path("events"), ["masked"] * 2 + ["direction"] * 3)  # a real training
    job.run(script.train)
    job = timed_job(data_path("events", "S"))  # on an emulated storage and GPU, recorded
    job.run(script.train)

A `Job` really trains the model. A `RecordedJob` only examines the loading: its emulated GPU takes
`STEP_MS` for a step and computes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast
from weakref import ref

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.data import Dataset, get_worker_info

from course_utils.errors import CourseError
from course_utils.hardware.clock import HostClock, RealClock
from course_utils.hardware.gpu import Accelerator, get_accelerator, leaves, map_tensors, tensors
from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.loading.events import Events, Sample, open_events, read_labels
from keepfed.measure.trace import Trace, record

STEP_MS = 50.0
STORAGE = "busy Lustre"
EVENTS = 795  # events per epoch of a recorded job, not a multiple of the batch size
MOST_WORKERS = 64
HELD_OUT = 5  # one run in so many is held out to evaluate the model


class CountedEvents(Dataset[Sample]):
    """Events in one file format, and a count of the events that all workers read."""

    def __init__(self, events: Events, read: torch.Tensor):
        self.events, self.read = events, read
        self.labels, self.path_of = events.labels, events.path_of

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of some events, with one request for neighbouring events."""
        worker = get_worker_info()
        self.read[worker.id + 1 if worker else 0] += len(indices)
        return self.events.__getitems__(indices)

    def close(self) -> None:
        """Close the file in this process, until the next event opens it again."""
        self.events.close()


class Job:
    """A real training on this machine; `losses` and `scores` hold its results."""

    storage: SlowFileSystem | None = None

    def __init__(self, folder: str | Path, plan: Sequence[str], *, seconds: float = 600):
        """Choose the events, and the task of each epoch.

        Args:
            folder: events as make_events writes them. One run in five is held out.
            plan: the task of each epoch, "masked" or "direction".
            seconds: time limit after the first batch. Later batches and epochs are skipped.
        """
        self.folder, self.plan = Path(folder), list(plan)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        runs = read_labels(folder).run_id
        self.training: list[int] = np.flatnonzero(runs % HELD_OUT).tolist()
        self.held_out: list[int] = np.flatnonzero(runs % HELD_OUT == 0).tolist()
        self.losses: list[tuple[str, list[float]]] = []  # per epoch: task, loss of every step
        self.scores: list[tuple[str, float]] = []  # per epoch: task, held-out loss after it
        self._read = torch.zeros(MOST_WORKERS + 1, dtype=torch.int64)
        self._read.share_memory_()  # type: ignore[no-untyped-call]
        self._seconds, self._until = seconds, 0.0

    def run(self, train: Callable[[Job], None]) -> None:
        """Run the training with a job that it cannot change."""
        train(read_only(self))

    def events(self, form: str) -> CountedEvents:
        """Return the events in a file format: "npy", or "npz" with one file per event."""
        return CountedEvents(open_events(self.folder, form, fs=self.storage), self._read)

    def follow(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of an epoch."""
        for batch in self._batches(loader):
            self._until = self._until or time.monotonic() + self._seconds
            yield batch
            if self.late:
                return

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return 0 < self._until < time.monotonic()

    def upload(self, batch: Any) -> Any:
        """Copy the tensors of a batch to the device."""
        return map_tensors(lambda tensor: tensor.to(self.device), batch)

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Compute `function(*given)` on the device, possibly asynchronously."""
        return function(*given)

    def note(self, task: str, losses: Sequence[Any], seen: Sequence[Any]) -> None:
        """Record the losses of the steps of an epoch, and the losses on held-out events."""
        self.losses.append((task, [float(loss) for loss in losses]))
        if seen:
            self.scores.append((task, float(np.mean([float(loss) for loss in seen]))))

    def _batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        return loader


FOR_SCRIPTS = {
    *("device", "folder", "held_out", "late", "plan", "storage", "training"),
    *("compute", "events", "follow", "note", "upload"),
}


def read_only(job: Job) -> Job:
    """Return what a script may use of `job`. Assignments raise an error, and lists are copies."""

    class ReadOnlyJob:
        def __getattr__(self, name: str) -> Any:
            if name not in FOR_SCRIPTS:
                raise AttributeError(
                    f"A script has no access to job.{name}. It may use job.events, job.follow, "
                    "job.upload, job.compute, job.note and the data of the job."
                )
            value = getattr(job, name)
            return [*value] if isinstance(value, list) else value

        def __setattr__(self, name: str, value: object) -> None:
            raise CourseError(
                f"The script changes job.{name}, but a job is read-only: the storage, the clock "
                "and the plan belong to the centre. Remove this line."
            )

    return cast(Job, ReadOnlyJob())


class RecordedJob(Job):
    """A job on an emulated storage and GPU; `trace`, `epochs` and `held` describe the loading.

    It runs two epochs over some events and holds none out, because only the loop matters.
    """

    storage: SlowFileSystem

    def __init__(
        self, folder: str | Path, storage: SlowFileSystem, *, first: int, seconds: float = 600
    ):
        """Use `EVENTS` events, starting with index `first`."""
        super().__init__(folder, ["masked", "masked"], seconds=seconds)
        self.storage, self.device = storage, torch.device("cpu")
        self.training, self.held_out = list(range(first, first + EVENTS)), []
        self.clock: HostClock = RealClock()
        self.gpu = self._make_gpu()
        self.trace = Trace()
        self.epochs: list[list[int]] = []  # IDs served in each epoch
        self.sizes: list[int] = []  # samples in each batch
        self.held = 0  # most events at a time that were read but not yet used, or kept after use
        self.start_up_s = float("inf")
        self._served = 0
        self._from_memory = 0  # at most 0: events of earlier epochs that were served but not read
        self._came: list[list[Callable[[], bool]]] = []  # per batch: is each large tensor alive?

    def run(self, train: Callable[[Job], None]) -> None:
        """Run the training and record it."""
        with record(clock=self.clock) as self.trace:
            train(read_only(self))
            self.gpu.synchronize()
        steps = [span.start_ns for span in self.trace.spans if span.lane == "gpu"]
        if steps:
            self.start_up_s = (min(steps) - self.trace.start_ns) / 1e9

    @property
    def read(self) -> int:
        """Number of events that all processes have read so far."""
        return int(self._read.sum())

    def upload(self, batch: Any) -> Any:
        """Copy the tensors of a batch to the emulated GPU."""
        uploaded = self.gpu.upload(batch)
        buffers = [one for one in leaves(uploaded) if hasattr(one, "shape")]
        if self._came:
            self._came[-1] += [partial(_is_alive, ref(one)) for one in _large(buffers)]
        return uploaded

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Keep the GPU busy for a step, and read its loss; `function` is not called."""
        return self.gpu.step(given[-1]).item()

    def note(self, task: str, losses: Sequence[Any], seen: Sequence[Any]) -> None:
        """Ignore the losses, because the emulated GPU computes none."""

    def _make_gpu(self) -> Accelerator:
        return get_accelerator("RTX 3090", step_ms=STEP_MS, emulate=True, clock=self.clock)

    def _batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        self.epochs.append([])
        self._from_memory = min(self.read - self._served, 0)
        for batch in self._received(loader):
            self._register_batch(batch)
            yield batch
            del batch  # else it would stay alive until the next batch arrives

    def _received(self, loader: Iterable[Any]) -> Iterator[Any]:
        return self.trace.batches(loader, ids="event_id")

    def _register_batch(self, batch: Any) -> None:
        """Register a received batch, and count the events that are held now."""
        ids = batch["event_id"].tolist()
        alive = sum(any(lives() for lives in some) for some in self._came[:-2])
        kept = alive * len(ids)
        # fewer read than served in this epoch means that events came from memory
        ahead = self.read - self._served - self._from_memory
        self.held = max(self.held, abs(ahead) + kept)
        self._served += len(ids)
        self.sizes.append(len(ids))
        parts = [StorageWeakRef(one.untyped_storage()) for one in _large(tensors(batch))]  # type: ignore[no-untyped-call]
        self._came.append([partial(_is_stored, one) for one in parts])
        self.epochs[-1] += ids


def _large(parts: Sequence[Any]) -> list[Any]:
    """Return the tensors that have at least a quarter of the size of the largest."""
    sizes = [math.prod(one.shape) for one in parts]
    return [one for one, size in zip(parts, sizes, strict=True) if size >= max(sizes) / 4]


def _is_alive(buffer: ref[Any]) -> bool:
    return buffer() is not None


def _is_stored(memory: StorageWeakRef) -> bool:
    """Return whether a tensor's memory is still used by the tensor, a view or an array."""
    return not memory.expired()  # type: ignore[no-untyped-call]


def timed_job(folder: str | Path, *, seconds: float = 12) -> RecordedJob:
    """Return a job on a busy Lustre without a page cache that stops after `seconds`."""
    storage = slow_storage(folder, STORAGE, cache_mb=0)
    return RecordedJob(folder, storage, first=200, seconds=seconds)
