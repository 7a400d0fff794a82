"""Datasets and loaders with one known fault in their samples each, and correct ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

N = 320


class Table(Dataset[Any]):
    """Numbers with labels in four blocks, so the order of the dataset is the order of labels."""

    epoch = 0

    def __init__(self, count: int = N):
        self.count = count
        self.numbers = torch.arange(count * 8, dtype=torch.float32).reshape(count, 8) / count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.numbers[index], index * 4 // self.count


class Stream(IterableDataset[Any]):
    """The table as a stream that workers share, shuffled in each epoch by its number."""

    def __init__(self, *, share: bool = True):
        self.share, self.shared_epoch = share, torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        step, first = (info.num_workers, info.id) if info and self.share else (1, 0)
        order = random.Random(int(self.shared_epoch)).sample(range(N), N)
        self.shared_epoch += info is None or info.id == 0
        table = Table()
        yield from (table[index] for index in order[first::step])


class OwnGenerator(Table):
    """Adds noise from a generator that every worker gets a copy of."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        numbers, label = super().__getitem__(index)
        return numbers + torch.from_numpy(self.rng.normal(size=8).astype("f4")), label


class LazyGenerator(Table):
    """Creates its generator in the worker, from the worker's seed."""

    rng: np.random.Generator | None = None

    def __getitem__(self, index: int) -> Any:
        if self.rng is None:
            self.rng = np.random.default_rng(torch.initial_seed())
        numbers, label = super().__getitem__(index)
        return numbers + float(self.rng.normal()), label


class Repeats(Sampler[int]):
    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        return iter([*torch.randperm(N - 8).tolist(), *range(8)])


def loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"batch_size": 16, **options})


class Blocks(Sampler[list[int]]):
    """Batches of neighbors, in a random order of batches: a cheap and correct order."""

    def __len__(self) -> int:
        return N // 16

    def __iter__(self) -> Iterator[list[int]]:
        for first in random.sample(range(0, N, 16), N // 16):
            yield [*range(first, first + 16)]


class Unlabeled(Table):
    def __getitem__(self, index: int) -> Any:
        return {"numbers": self.numbers[index], "name": f"event {index}"}


class WholeBatches(Unlabeled):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def as_array(samples: list[Any]) -> Any:
    return np.stack([numbers.numpy() for numbers, _ in samples])


class Mixed(Table):
    """Labels that are not in order."""

    def __getitem__(self, index: int) -> Any:
        return self.numbers[index], index % 4


class Constant(IterableDataset[Any]):
    """Few different contents, which many samples share."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        yield from (torch.tensor(n % 3) for n in range(info.id if info else 0, N, 2))


CORRECT: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: loader(Table(), shuffle=True),
    "drop_last": lambda: loader(Table(), shuffle=True, batch_size=30, drop_last=True),
    "weights": lambda: loader(Table(), sampler=WeightedRandomSampler([1.0] * N, N)),
    "ConcatDataset": lambda: loader(ConcatDataset([Mixed(), Mixed()]), shuffle=True),
    "tokens of few values": lambda: loader(
        TensorDataset(torch.randint(0, 2, (N, 1))), shuffle=True
    ),
    "blocks": lambda: DataLoader(Mixed(), batch_sampler=Blocks()),
    "no batching": lambda: DataLoader(Mixed(), batch_size=None, shuffle=True),
    "whole batches": lambda: loader(WholeBatches(), shuffle=True, num_workers=1),
    "dicts and texts": lambda: loader(Unlabeled(), shuffle=True),
    "arrays": lambda: loader(Table(), shuffle=True, collate_fn=as_array),
    "a shared stream": lambda: loader(Stream(), num_workers=2),
    "a persistent stream": lambda: loader(Stream(), num_workers=2, persistent_workers=True),
    "few contents": lambda: loader(Constant(), num_workers=2),
    "a generator in the worker": lambda: loader(LazyGenerator(), shuffle=True, num_workers=2),
    "a generator in the main process": lambda: loader(OwnGenerator(), shuffle=True),
}
