"""Run a script on an emulated storage and GPU: how busy the GPU is, and which events it gets."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from course_utils.loading.events import Events, Sample
from course_utils.stories.capstone import Job, TimedJob
from keepfed.batches import tensors

FIRST = 1100  # index of the first event, so that `timed_job` has other events
MOST_WORKERS = 64
COUNT_EVERY = 256  # reads of a process between two counts of the events in its memory


class CountedEvents(Dataset[Sample]):
    """Events of a file, and how many of them each process has read and keeps in memory."""

    def __init__(self, events: Events, read: torch.Tensor, kept: torch.Tensor):
        self.events, self.read, self.kept = events, read, kept
        self.labels, self.path_of, self.close = events.labels, events.path_of, events.close

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of some events, with one request for neighboring events."""
        worker = get_worker_info()
        process = worker.id + 1 if worker else 0
        if self.read[process] % COUNT_EVERY + len(indices) >= COUNT_EVERY:
            self.kept[process] = _events_in_memory()
        self.read[process] += len(indices)
        return self.events.__getitems__(indices)


class LoadingRun(TimedJob):
    """A timed job that records its start, and the events that it serves and holds."""

    def __init__(self, folder: str | Path, *, seconds: float):
        super().__init__(folder, first=FIRST, seconds=seconds)
        self.epochs: list[list[list[int]]] = []  # event IDs of each batch, by epoch
        self.held = 0  # most events at a time that were read but not yet used, or kept after use
        self.start_up_s = 0.0  # until the first epoch begins
        self.has_workers = True
        self._read, self._kept = (torch.zeros(MOST_WORKERS + 1, dtype=torch.int64) for _ in "rk")
        for counts in (self._read, self._kept):
            counts.share_memory_()  # type: ignore[no-untyped-call]
        self._served = self._bytes_before = 0

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
        return CountedEvents(super().events(form), self._read, self._kept)

    def _batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        self.has_workers = getattr(loader, "num_workers", 1) > 0
        if not self.epochs:
            self.start_up_s = time.perf_counter() - self._began
            self._bytes_before = _bytes_in_memory()
        self.epochs.append([])
        # at most 0: events of earlier epochs that were served but not read, because of a cache
        from_memory, event_bytes = min(int(self._read.sum()) - self._served, 0), 1.0
        for batch in super()._batches(loader):
            self.epochs[-1].append(batch["event_id"].tolist())
            # a worker is ahead if it read more, and has a cache if it read less than served
            ahead = int(self._read.sum()) - self._served - from_memory
            self.held = max(self.held, abs(ahead), int(self._kept.sum()))
            self._served += len(self.epochs[-1][-1])
            largest = max(tensor.nbytes for tensor in tensors(batch))
            event_bytes = largest / len(batch["event_id"])
            yield batch
            del batch  # else it would stay alive until the next batch arrives
        if len(self.epochs) == len(self.plan):  # not earlier, because counting takes time
            # an event counts as kept if half of its largest part is in memory, as a copy or not
            copies = 2 * (_bytes_in_memory() - self._bytes_before) / event_bytes
            self.held = min(max(self.held, int(copies)), len(self.training))


def _events_in_memory() -> int:
    """Count the events whose sample or tokens this process keeps in memory."""
    ids = (thing.get("event_id") for thing in gc.get_objects() if type(thing) is dict)
    return len({event for event in ids if isinstance(event, int | np.integer)})


def _bytes_in_memory() -> int:
    """Return the size of all tensors and arrays in the memory of this process."""
    gc.collect()
    objects = gc.get_objects()
    sizes = dict[int, int]()
    for thing in chain(objects, gc.get_referents(*objects)):
        if type(thing) is torch.Tensor and thing.device.type == "cpu":
            memory = thing.untyped_storage()
            sizes[memory.data_ptr()] = memory.nbytes()
        elif type(thing) is np.ndarray and thing.base is None:
            sizes[id(thing)] = thing.nbytes
    return sum(sizes.values())
