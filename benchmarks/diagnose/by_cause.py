"""Loops that were built with a known cause, one or more for each cause."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from benchmarks.diagnose.loops import (
    Counted,
    FromStorage,
    InMemory,
    Loop,
    fixed,
    identity_collate,
    known,
    step_of,
)
from course_utils.teaching.explorer import use_cpu
from course_utils.teaching.notebook import data_path
from keepfed.loaders.images import Jpegs
from keepfed.loaders.workers import PackedStrings


class PythonTransform(InMemory):
    """Dataset with a transform in pure Python."""

    def __init__(self, ms: float, rows: int = 20_000):
        """Compute for `ms` per sample."""
        super().__init__(rows)
        self.ms = ms

    def __getitem__(self, index: int) -> torch.Tensor:
        """Compute, then return one row."""
        use_cpu(self.ms)
        return self.rows[int(index)]


class Multiplying(Counted):
    """Dataset with six numpy matrix products per sample."""

    count = 4000

    def __init__(self) -> None:
        self.matrix = np.random.default_rng(0).random((256, 256), np.float32)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Multiply, and return one row."""
        product: NDArray[np.float32] = self.matrix
        for _ in range(6):
            product = product @ self.matrix / np.float32(256)
        return torch.from_numpy(product[0].copy())


class Trees(Counted):
    """Dataset whose samples consist of many small dicts."""

    count = 4000

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the hits of one event, one dict per hit."""
        return {"hits": [{"x": i, "t": 0.5 * i, "name": f"s{i}"} for i in range(500)]}


class Large(Counted):
    """Dataset of samples of several megabytes that are cheap to create."""

    count = 4000

    def __init__(self, dtype: torch.dtype = torch.float32):
        """Use elements of type `dtype`."""
        self.dtype = dtype

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return 2,000,000 elements (8 MB as float32)."""
        return torch.empty(2_000_000, dtype=self.dtype)


class Paths(Dataset[int]):
    """Dataset over a list of two million strings, each read once."""

    def __init__(self) -> None:
        self.paths: Sequence[str] = [
            f"/data/train/{i % 1000:04d}/image_{i:08d}.jpg" for i in range(2_000_000)
        ]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        """Return the length of a path."""
        return len(self.paths[index])


class OneIsSlow(InMemory):
    """Dataset with one huge sample in a few hundred."""

    def __getitem__(self, index: int) -> torch.Tensor:
        """Compute for a long time for every 320th sample."""
        use_cpu(400 if index % 320 == 7 else 0.2)
        return self.rows[int(index)]


class NoneIsSlow(OneIsSlow):
    """The same dataset, with huge samples made smaller before training."""

    def __getitem__(self, index: int) -> torch.Tensor:
        use_cpu(0.2)
        return self.rows[int(index)]


def collate_in_python(samples: list[torch.Tensor]) -> torch.Tensor:
    """Collate slowly, as if copying number by number."""
    use_cpu(40)
    return torch.stack(samples)


def on_one_core(worker_id: int) -> None:
    """Pin every worker to the same core, as some job scripts do."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@known("GPU-bound: data in memory", "GPU-bound")
def _in_memory(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64, num_workers=2), step_of(30)


@known("GPU-bound: slow loader, slower step", "GPU-bound")
def _hidden_storage(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 5), batch_size=16, num_workers=2), step_of(80)


@known("GPU-bound: heavy transform, hidden", "GPU-bound")
def _hidden_cpu(folder: Path) -> Loop:
    return DataLoader(PythonTransform(2), batch_size=16, num_workers=2), step_of(100)


@known("storage, no workers", "storage")
def _storage(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 5), batch_size=16), step_of(20)


@known("storage, two workers", "storage")
def _storage_workers(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 10), batch_size=16, num_workers=2), step_of(20)


@fixed("storage, two workers")
def _local(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 0), batch_size=16, num_workers=2), step_of(20)


@known("CPU: decoding JPEGs", "CPU")
def _jpegs(folder: Path) -> Loop:
    images = Jpegs(data_path("images"), transform=_crop)
    return DataLoader(images, batch_size=32, num_workers=2, shuffle=True), step_of(4)


@fixed("CPU: decoding JPEGs")
def _decoded(folder: Path) -> Loop:
    count = len(Jpegs(data_path("images")))  # equal length, because workers start once per epoch
    images = InMemory(count, 3 * 96 * 96)
    return DataLoader(images, batch_size=32, num_workers=2, shuffle=True), step_of(4)


def _crop(image: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(image[None].float(), (96, 96))[0]


@known("CPU: transform in Python", "CPU")
def _python(folder: Path) -> Loop:
    return DataLoader(PythonTransform(3), batch_size=16, num_workers=1), step_of(15)


@known("CPU: thread pools", "CPU")
def _pools(folder: Path) -> Loop:
    return DataLoader(Multiplying(), batch_size=8, num_workers=2), step_of(5)


@known("CPU: workers on one core", "CPU")
def _pinned(folder: Path) -> Loop:
    loader = DataLoader(
        PythonTransform(2), batch_size=16, num_workers=2, worker_init_fn=on_one_core
    )
    return loader, step_of(10)


@fixed("CPU: workers on one core")
def _unpinned(folder: Path) -> Loop:
    return DataLoader(PythonTransform(2), batch_size=16, num_workers=2), step_of(10)


@known("IPC: trees of dicts", "collate or IPC")
def _trees(folder: Path) -> Loop:
    loader = DataLoader(Trees(), batch_size=32, num_workers=2, collate_fn=identity_collate)
    gpu = step_of(2)
    return loader, lambda batch: gpu(torch.zeros(8))


@fixed("IPC: trees of dicts")
def _flat(folder: Path) -> Loop:
    loader = DataLoader(InMemory(4000, 1000), batch_size=32, num_workers=2)
    gpu = step_of(2)
    return loader, lambda batch: gpu(torch.zeros(8))


@known("IPC: large tensors", "collate or IPC")
def _large(folder: Path) -> Loop:
    loader = DataLoader(Large(), batch_size=8, num_workers=2)
    gpu = step_of(2)
    return loader, lambda batch: gpu(batch[:, :8].clone())


@fixed("IPC: large tensors", "send-less")
def _half(folder: Path) -> Loop:
    loader = DataLoader(Large(torch.float16), batch_size=8, num_workers=2)
    gpu = step_of(2)
    return loader, lambda batch: gpu(batch[:, :8].clone())


@known("collate in Python", "collate or IPC")
def _collate(folder: Path) -> Loop:
    loader = DataLoader(InMemory(), batch_size=64, collate_fn=collate_in_python)
    return loader, step_of(10)


@fixed("collate in Python")
def _stacked(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64), step_of(10)


@known("transfer from pageable memory", "transfer")
def _transfer(folder: Path) -> Loop:
    loader = DataLoader(InMemory(8_000, 4096), batch_size=64, num_workers=2)
    return loader, step_of(10, pageable_gb_s=0.15)


@fixed("transfer from pageable memory")
def _pinned_memory(folder: Path) -> Loop:
    return DataLoader(InMemory(8_000, 4096), batch_size=64, num_workers=2), step_of(10)


@known("Python in the step", "main process")
def _python_step(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64, num_workers=2), step_of(10, python_ms=25)


@fixed("Python in the step")
def _lean_step(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64, num_workers=2), step_of(10)


@known("start-up of spawned workers", "start-up")
def _start_up(folder: Path) -> Loop:
    loader = DataLoader(
        InMemory(1_280), batch_size=64, num_workers=2, multiprocessing_context="spawn"
    )
    return loader, step_of(10)


@known("memory: a list of paths", "memory")
def _memory(folder: Path) -> Loop:
    loader = DataLoader(
        Paths(), batch_size=512, num_workers=2, shuffle=True, multiprocessing_context="fork"
    )
    return loader, step_of(20)


class PathsInArrays(Paths):
    """The same strings in two arrays."""

    def __init__(self) -> None:
        """Pack the list."""
        super().__init__()
        self.paths = PackedStrings(self.paths)


@fixed("memory: a list of paths")
def _packed(folder: Path) -> Loop:
    loader = DataLoader(
        PathsInArrays(), batch_size=512, num_workers=2, shuffle=True, multiprocessing_context="fork"
    )
    return loader, step_of(20)


@known("uneven: a slow sample", "uneven")
def _uneven(folder: Path) -> Loop:
    loader = DataLoader(OneIsSlow(), batch_size=32, num_workers=2)
    return loader, step_of(10)


@fixed("uneven: a slow sample")
def _even(folder: Path) -> Loop:
    return DataLoader(NoneIsSlow(), batch_size=32, num_workers=2), step_of(10)
