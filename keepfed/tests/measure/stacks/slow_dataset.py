"""A dataset, a sampler and a collate function that each spend their time in one known line."""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)  # the line of the fetch
        return torch.tensor(float(index))


class SlowOrder(Sampler[list[int]]):
    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Iterator[list[int]]:
        for first in range(0, 400, 8):
            sorted(range(200_000), key=lambda i: -i)  # the line of the sampler
            yield [*range(first, first + 8)]


def collate(samples: list[Any]) -> torch.Tensor:
    time.sleep(0.02)  # the line of collating
    return torch.stack(samples)


def step(batch: torch.Tensor) -> None:
    time.sleep(0.01)  # the line of the loop
