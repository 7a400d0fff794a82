"""Run a script on an emulated storage and GPU: how busy the GPU is, and which events it gets."""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

from course_utils.loading.events import Events, Sample
from course_utils.stories.capstone import Job, TimedJob

FIRST = 1100  # index of the first event, so that `timed_job` has other events
MOST_WORKERS = 64


class CountedEvents(Dataset[Sample]):
    """Events of a file, and how many of them each process has read."""

    def __init__(self, events: Events, read: torch.Tensor):
        self.events, self.read = events, read
        self.labels, self.path_of, self.close = events.labels, events.path_of, events.close

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of some events, with one request for neighboring events."""
        worker = get_worker_info()
        self.read[worker.id + 1 if worker else 0] += len(indices)
        return self.events.__getitems__(indices)


class LoadingRun(TimedJob):
    """A timed job that records its start, and the events that it serves and holds."""

    def __init__(self, folder: str | Path, *, seconds: float):
        super().__init__(folder, first=FIRST, seconds=seconds)
        self.epochs: list[list[list[int]]] = []  # event IDs of each batch, by epoch
        self.held = 0  # most events at a time that were read but not yet used, or kept after use
        self.start_up_s = 0.0  # until the first epoch begins
        self.has_workers = True
        self._read = torch.zeros(MOST_WORKERS + 1, dtype=torch.int64)
        self._read.share_memory_()  # type: ignore[no-untyped-call]
        self._served = 0
        self._batches_served: list[tuple[weakref.ref[Any], int]] = []  # a tensor, and the events

    @property
    def au(self) -> float:
        """Share of the time after the first step in which the GPU computed."""
        return self.trace.summary().au

    def run(self, train: Callable[[Job], None]) -> None:
        """Run the training and record it."""
        self._began = time.perf_counter()
        super().run(train)

    def events(self, form: str) -> Any:
        """Return the events in a file format, which count their use."""
        return CountedEvents(super().events(form), self._read)

    def _batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        self.has_workers = getattr(loader, "num_workers", 1) > 0
        if not self.epochs:
            self.start_up_s = time.perf_counter() - self._began
        self.epochs.append([])
        # at most 0: events of earlier epochs that were served but not read, because of a cache
        from_memory = min(int(self._read.sum()) - self._served, 0)
        for batch in super()._batches(loader):
            ids = batch["event_id"]
            self.epochs[-1].append(ids.tolist())
            # a worker is ahead if it read more, and has a cache if it read less than served
            ahead = int(self._read.sum()) - self._served - from_memory
            kept = sum(count for tensor, count in self._batches_served if tensor() is not None)
            self.held = max(self.held, min(abs(ahead) + kept, len(self.training)))
            self._served += len(ids)
            self._batches_served.append((weakref.ref(ids), len(ids)))
            yield batch
            del batch, ids  # else they would stay alive until the next batch arrives
