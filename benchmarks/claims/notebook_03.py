"""Measure the claims of notebook 03."""

import time
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Subset

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import MemmapEvents, pad_collate
from course_utils.teaching.notebook import data_path, start_workers


class Everything(IterableDataset[int]):
    """All numbers, in every worker."""

    def __iter__(self) -> Any:
        return iter(range(100))


def served_over_distinct() -> int:
    """Count how often two workers serve each sample of a dataset that ignores workers."""
    served = [int(number) for number in DataLoader(Everything(), batch_size=None, num_workers=2)]
    return len(served) // len(set(served))


def step_share() -> float:
    """Return the share of a step's time that is attributed to the line that launches it."""
    gpu = get_accelerator(step_ms=40, emulate=True)
    batch, launching = {"x": torch.zeros(8)}, 0.0
    start = time.perf_counter()
    for _ in range(30):
        on_gpu = gpu.upload(batch)
        before = time.perf_counter()
        loss = gpu.step(on_gpu)
        launching += time.perf_counter() - before
        loss.item()
    return launching / (time.perf_counter() - start)


def headroom_on_ssd() -> float:
    """Return the speed-up of a loop on the laptop SSD when one batch is replayed."""
    gpu = get_accelerator(step_ms=40, emulate=True)

    def steps_per_s(batches: Iterable[Any]) -> float:
        ends = []
        for batch in batches:
            gpu.step(gpu.upload(batch)).item()
            ends.append(time.perf_counter())
        return (len(ends) - 1) / (ends[-1] - ends[0])

    loader = _loader("laptop SSD", batch_size=16)
    trained = steps_per_s(loader)
    return steps_per_s([next(iter(loader))] * 25) / trained


def burst() -> float:
    """Return the throughput of the first 8 batches after a pause over that of the last 20."""
    start_workers()
    times: list[float] = []
    for _ in _loader("busy Lustre", batch_size=8, num_workers=2, prefetch_factor=4):
        if not times:
            time.sleep(1)
        times.append(time.perf_counter())
    return 8 / (times[8] - times[0]) * (times[-1] - times[-21]) / 20


def _loader(storage: str, **options: Any) -> DataLoader[Any]:
    folder = data_path("events", "S")
    events = MemmapEvents(folder, fs=slow_storage(folder, storage, cache_mb=0))
    return DataLoader(
        Subset(events, range(0, 2000, 5)), shuffle=True, collate_fn=pad_collate, **options
    )
