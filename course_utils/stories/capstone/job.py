"""The job that a training script runs in: events, storage, GPU, tasks and a time limit.

    job = Job(data_path("events"), ["masked"] * 2 + ["direction"] * 3)  # a real training
    job.run(script.train)
    job = timed_job(data_path("events", "S"))  # on an emulated storage and GPU, recorded
    job.run(script.train)

A `Job` really trains the model. A `TimedJob` only examines the loading: its emulated GPU takes
`STEP_MS` for a step and computes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.loading.events import Events, open_events, read_labels
from keepfed.batches import map_tensors
from keepfed.measure.trace import Trace, record

STEP_MS = 50.0
STORAGE = "busy Lustre"
EVENTS = 795  # events per epoch of a timed job, not a multiple of the batch size
HELD_OUT = 5  # one run in so many is held out to evaluate the model


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
        self._seconds, self._until = seconds, 0.0

    def run(self, train: Callable[[Job], None]) -> None:
        """Run the training."""
        train(self)

    def events(self, form: str) -> Events:
        """Return the events in a file format: "npy", or "npz" with one file per event."""
        return open_events(self.folder, form, fs=self.storage)

    def follow(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of an epoch, or none if the time is up."""
        for batch in () if self.late else self._batches(loader):
            self._until = self._until or time.monotonic() + self._seconds
            yield batch
            del batch  # else it would stay alive until the next batch arrives
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


class TimedJob(Job):
    """Two epochs on an emulated storage and GPU; `trace` describes the loading.

    No events are held out, because only the loop matters.
    """

    storage: SlowFileSystem

    def __init__(self, folder: str | Path, *, first: int, seconds: float):
        """Use `EVENTS` events, starting with index `first`, and stop after `seconds`."""
        super().__init__(folder, ["masked", "masked"], seconds=seconds)
        self.storage, self.device = slow_storage(folder, STORAGE, cache_mb=0), torch.device("cpu")
        self.training, self.held_out = list(range(first, first + EVENTS)), []
        self.gpu = get_accelerator("RTX 3090", step_ms=STEP_MS, emulate=True)
        self.trace = Trace()

    def run(self, train: Callable[[Job], None]) -> None:
        """Run the training and record it."""
        with record() as self.trace:
            train(self)
            self.gpu.synchronize()

    def upload(self, batch: Any) -> Any:
        """Copy the tensors of a batch to the emulated GPU."""
        return self.gpu.upload(batch)

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Keep the GPU busy for a step, and read its loss; `function` is not called."""
        return self.gpu.step(given[-1]).item()

    def note(self, task: str, losses: Sequence[Any], seen: Sequence[Any]) -> None:
        """Ignore the losses, because the emulated GPU computes none."""

    def _batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        return self.trace.batches(loader, ids="event_id")


def timed_job(folder: str | Path) -> TimedJob:
    """Return a job on a busy Lustre without a page cache that stops after 12 seconds."""
    return TimedJob(folder, first=200, seconds=12)
