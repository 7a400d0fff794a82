"""Loaders, iterables and steps of unusual types, from other libraries or written by hand."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.diagnose.loops import FromStorage, InMemory, Loop, fixed, known, step_of
from course_utils.teaching.explorer import use_cpu


class Stalls(InMemory):
    """Dataset in which one sample in 97 waits 250 ms, like a file on a sleeping disk."""

    def __getitem__(self, index: int) -> torch.Tensor:
        """Wait, 250 ms for every 97th sample."""
        time.sleep(0.25 if index % 97 == 50 else 0.001)
        return self.rows[int(index)]


@known("one sample in 97 stalls, four workers", "uneven")
def _stalls(folder: Path) -> Loop:
    return DataLoader(Stalls(), batch_size=16, num_workers=4), step_of(5)


@fixed("one sample in 97 stalls, four workers")
def _awake(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 1), batch_size=16, num_workers=4), step_of(5)


class MappedBatches(IterableDataset[Any]):
    """Consecutive events of a mapped file as batches in random order: PolarBERT's dataset."""

    def __init__(self, folder: Path, dtype: type[np.generic] = np.float32):
        """Write 40,000 events of 128 pulses."""
        self.size, shape = 1024, (40_960, 128, 4)
        self.x = np.memmap(folder / "x.npy", dtype, "w+", shape=shape)
        self.x[:] = 1
        self.lengths = np.memmap(folder / "l.npy", np.float32, "w+", shape=shape[:1])

    def __len__(self) -> int:
        return len(self.x) // self.size

    def __iter__(self) -> Iterator[Any]:
        starts = np.arange(0, len(self.x), self.size)
        np.random.shuffle(starts)
        for start in starts:
            part = slice(start, start + self.size)
            yield torch.tensor(self.x[part]), torch.tensor(self.lengths[part])


@known("mapped batches of 2 MB, one worker", "collate or IPC")
def _mapped(folder: Path) -> Loop:
    return _mapped_as(folder, np.float32)


@fixed("mapped batches of 2 MB, one worker", "narrow-dtype")
def _mapped_bytes(folder: Path) -> Loop:
    return _mapped_as(folder, np.uint8)


def _mapped_as(folder: Path, dtype: type[np.generic]) -> Loop:
    dataset, gpu = MappedBatches(folder, dtype), step_of(0.5)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
    return loader, lambda batch: gpu(batch[0][:, 0].clone())


def _slow_start(worker_id: int) -> None:
    time.sleep(1.5)


@known("workers that take 1.5 s to start, 40 batches", "start-up")
def _slow_starters(folder: Path) -> Loop:
    loader = DataLoader(InMemory(40 * 64), batch_size=64, num_workers=2, worker_init_fn=_slow_start)
    return loader, step_of(10)


class Pool:
    """Batches from a separate pool of processes, in order."""

    def __init__(self, processes: int):
        self.processes = processes

    def __iter__(self) -> Iterator[torch.Tensor]:
        context = multiprocessing.get_context("fork")
        with context.Pool(self.processes) as pool:
            for batch in pool.imap(_made, range(3000)):
                yield torch.from_numpy(batch)


def _made(number: int) -> np.ndarray:
    use_cpu(12)
    return np.full((64, 16), number, np.float32)


@known("a pool of processes of its own", "CPU")
def _pool(folder: Path) -> Loop:
    return Pool(1), step_of(6)


@fixed("a pool of processes of its own")
def _made_before(folder: Path) -> Loop:
    return [torch.full((64, 16), float(number)) for number in range(3000)], step_of(6)


class Ahead(DataLoader[Any]):
    """A loader whose iterator prefetches one batch with a generator, as in Accelerate."""

    def __iter__(self) -> Any:
        """Yield each batch after the next one has arrived."""
        batches = super().__iter__()
        batch = next(batches)
        for later in batches:
            yield batch
            batch = later
        yield batch


class Standardized(InMemory):
    """Rows that are standardized one at a time."""

    def __getitem__(self, index: int) -> torch.Tensor:
        row = self.rows[int(index)].double()
        for _ in range(4):
            row = (row - row.mean()) / (row.std() + 1)
        return row.float()


class StandardizedTogether(Standardized):
    """The same rows, standardized a batch at a time."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        rows = self.rows[indices].double()
        for _ in range(4):
            rows = (rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1)
        return list(rows.float())


@known("a loader of Accelerate's shape", "CPU")
def _accelerated(folder: Path) -> Loop:
    return Ahead(Standardized(), batch_size=64), step_of(3)


@fixed("a loader of Accelerate's shape")
def _accelerated_together(folder: Path) -> Loop:
    return Ahead(StandardizedTogether(), batch_size=64), step_of(3)


@known("a step that computes on the CPU", "CPU")
def _cpu_step(folder: Path) -> Loop:
    loader = DataLoader(Standardized(), batch_size=64, shuffle=True)
    return loader, lambda batch: use_cpu(3)


@fixed("a step that computes on the CPU")
def _cpu_step_together(folder: Path) -> Loop:
    loader = DataLoader(StandardizedTogether(), batch_size=64, shuffle=True)
    return loader, lambda batch: use_cpu(3)


class Sequence:
    """A sequence of batches by index, as in Keras."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, number: int) -> np.ndarray:
        if number >= len(self):
            raise IndexError(number)
        time.sleep(0.012)
        return np.full((64, 16), number, np.float32)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield all batches."""
        return (self[number] for number in range(len(self)))


@known("a sequence of batches, as in Keras", "storage")
def _sequence(folder: Path) -> Loop:
    gpu = step_of(10)
    return Sequence(), lambda batch: gpu(torch.from_numpy(batch))
