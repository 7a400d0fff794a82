"""Datasets for the tests of traced loaders; importable by workers under every start method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from course_utils.measure.spans import current, stage


class Marked(Dataset[torch.Tensor]):
    """Marks its stages."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        with stage("read"):
            value = torch.tensor([float(index)])
        with stage("decode"):
            return value


class Unmarked(Dataset[float]):
    """A third-party dataset, which knows nothing of stages."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        if index < 0:
            raise IndexError(index)
        return float(index)


class Stream(IterableDataset[int]):
    """Split among the workers."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for value in range(first, 12, step):
            with stage("read"):
                pass
            yield value


class Broken(Unmarked):
    """Fails at one sample."""

    def __getitem__(self, index: int) -> float:
        if index == 5:
            raise ValueError("corrupt sample 5")
        return float(index)


class Emulating(Unmarked):
    """Reads from something that is not there."""

    def __getitem__(self, index: int) -> float:
        if trace := current():
            trace.mention("emulated tape")
        return float(index)


class Pair(NamedTuple):
    x: torch.Tensor
    y: list[str]


@dataclass(slots=True)
class Slotted:
    """A batch without a `__dict__`."""

    pulses: torch.Tensor


def to_pair(samples: list[float]) -> Pair:
    return Pair(torch.tensor(samples), [str(s) for s in samples])


def to_dict(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"event_id": torch.tensor([int(s) for s in samples])}


def note_worker(worker_id: int) -> None:
    """A `worker_init_fn` whose effect shows in the batches."""
    info = get_worker_info()
    assert info is not None
    info.dataset.note = worker_id


class Noted(Unmarked):
    """Serves what its `worker_init_fn` noted."""

    note = -1

    def __getitem__(self, index: int) -> float:
        return float(self.note)
