"""Demonstrations: wrong data, and no message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from course_utils.loading.workers import SharedEpoch, worker_rng
from notebooks.stories.worker_traps.traps import QUICK, Numbers


class Noise(Dataset[int]):
    """Draws a number for each sample."""

    def __init__(self, mended: bool):
        self.mended, self.rng = mended, np.random.default_rng()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        rng = worker_rng() if self.mended else self.rng
        return int(rng.integers(1_000_000))


def random_numbers(mended: bool) -> Numbers:
    """Draw 8 numbers in four workers, in two epochs; how many differ."""
    loader = DataLoader(Noise(mended), num_workers=4, multiprocessing_context=QUICK)
    epochs = [[int(number) for number in loader] for _ in range(2)]
    return {
        "different of 8": len(set(epochs[0])),
        "different of 16 in two epochs": len({*epochs[0], *epochs[1]}),
    }


class FromAnIterator(Dataset[int]):
    """Takes samples from an iterator that has fewer than it should."""

    def __init__(self, mended: bool):
        self.mended, self.numbers = mended, iter(range(20))

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return next(self.numbers, -1) if self.mended else next(self.numbers)


def short_epoch(mended: bool) -> Numbers:
    """Run an epoch of 16 batches whose samples run out; how many batches come."""
    loader = DataLoader(
        FromAnIterator(mended), batch_size=4, num_workers=2, multiprocessing_context=QUICK
    )
    return {"batches": sum(1 for _ in loader), "expected": len(loader)}


class Reshuffled(IterableDataset[int]):
    """Shuffles anew by the number of the epoch."""

    def __init__(self, mended: bool):
        self.plain, self.shared, self.mended = 0, SharedEpoch(), mended

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes."""
        self.plain = self.shared.value = epoch

    def __iter__(self) -> Iterator[int]:
        epoch = self.shared.value if self.mended else self.plain
        yield from np.random.default_rng(epoch).permutation(20).tolist()


def epoch_number(mended: bool) -> Numbers:
    """Set the epoch of a dataset in a persistent worker; how many of three orders differ."""
    dataset = Reshuffled(mended)
    loader = DataLoader(
        dataset, num_workers=1, persistent_workers=True, multiprocessing_context=QUICK
    )
    orders = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        orders.append(tuple(int(number) for number in loader))
    return {"different orders of 3": len(set(orders))}


class Stream(IterableDataset[Any]):
    """Streams 100 samples; each worker takes every n-th sample, or every n-th whole batch."""

    def __init__(self, batches: bool):
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        parts = np.arange(96).reshape(6, 16) if self.batches else np.arange(100)
        yield from parts[first::step]


def tails(mended: bool) -> Numbers:
    """Drop incomplete batches of 16 in four workers; how many of 100 samples are seen."""
    loader = DataLoader(
        Stream(batches=mended),
        batch_size=None if mended else 16,
        drop_last=not mended,
        num_workers=4,
        multiprocessing_context=QUICK,
    )
    return {"seen of 100": sum(len(batch) for batch in loader)}
