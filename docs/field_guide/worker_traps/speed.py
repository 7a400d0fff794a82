"""Demonstrations: what makes workers slow."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.machine import use_start_method
from notebooks.stories.worker_traps.traps import QUICK, Numbers


def first_sample(samples: list[Any]) -> Any:
    """Collate nothing: hand over the one sample as it is."""
    return samples[0]


class Tiny(Dataset[int]):
    """Needs no time."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def first_batch(mended: bool) -> Numbers:
    """Start a worker in each of two epochs; the seconds of both. Only in a fresh process."""
    if mended:
        use_start_method(["torch", "numpy", __name__])
    loader = DataLoader(Tiny(), num_workers=1, multiprocessing_context="forkserver")
    return {"seconds of an epoch": [round(_seconds(loader), 2) for _ in range(2)]}


class Cached(Dataset[int]):
    """Keeps what it has read, and says for each sample whether it had to read it."""

    def __init__(self, shared: bool):
        self.kept = torch.zeros(64, dtype=torch.bool)
        if shared:
            self.kept.share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> int:
        missed = not self.kept[index]
        self.kept[index] = True
        return missed


def cache(mended: bool) -> Numbers:
    """Keep samples in the worker's copy, or in memory of all; how many are read in each epoch."""
    loader = DataLoader(
        Cached(shared=mended), batch_size=8, num_workers=2, multiprocessing_context=QUICK
    )
    return {"read": [int(sum(batch.sum() for batch in loader)) for _ in range(3)]}


class Pulses(Dataset[Any]):
    """Makes 10,000 pulses, as dictionaries or as one array."""

    def __init__(self, as_array: bool):
        self.as_array = as_array

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        if self.as_array:
            return torch.zeros(10_000, 3)
        return [{"time": 0.5 * i, "charge": 1.5 * i, "sensor": i} for i in range(10_000)]


def objects(mended: bool) -> Numbers:
    """Send pulses from a worker; the ms that the main process computes to receive a sample."""
    loader = DataLoader(
        Pulses(as_array=mended),
        num_workers=1,
        collate_fn=first_sample,
        multiprocessing_context=QUICK,
    )
    start = time.process_time()
    samples = sum(1 for _ in loader)
    return {"ms per sample": round((time.process_time() - start) * 1e3 / samples, 2)}


class Uneven(Dataset[int]):
    """Waits 10 ms for most samples, and half a second for one in sixteen."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        time.sleep(0.5 if index % 16 == 8 else 0.01)
        return index


def straggler(mended: bool) -> Numbers:
    """Serve batches in order, or as they come; seconds of an epoch, and whether order was kept."""
    loader = DataLoader(Uneven(), num_workers=2, in_order=not mended, multiprocessing_context=QUICK)
    start = time.perf_counter()
    served = [int(index) for index in loader]
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 2), "in order": served == sorted(served)}


def _seconds(loader: DataLoader[Any]) -> float:
    start = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - start
