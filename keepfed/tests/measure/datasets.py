"""Datasets and loaders of every kind, importable by workers under every start method."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, get_worker_info

from keepfed.measure.spans import current, stage

BATCH, BATCHES = 8, 40


class Numbers(Dataset[float]):
    """Dataset without marked stages."""

    def __init__(self, count: int = 12):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> float:
        return float(index)


class Marked(Numbers):
    """Dataset with marked stages, which mentions an emulation."""

    def __getitem__(self, index: int) -> Any:
        if trace := current():
            trace.mention("emulated tape")
        with stage("read"):
            value = torch.tensor([float(index)])
        with stage("decode"):
            return value


class Stream(IterableDataset[int]):
    """Stream whose values are split among the workers."""

    def __init__(self, count: int = 12):
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for value in range(first, self.count, step):
            with stage("read"):
                pass
            yield value


class Broken(Numbers):
    def __getitem__(self, index: int) -> float:
        if index == 5:
            raise LookupError("sample 5 is corrupt")
        return float(index)


class Deadly(Numbers):
    def __getitem__(self, index: int) -> float:
        os._exit(3)


class Noted(Numbers):
    """Dataset that returns the worker ID set by `note_worker`."""

    note = -1

    def __getitem__(self, index: int) -> float:
        return float(self.note)


class Rows(Numbers):
    """Dataset that accepts one index or several."""

    def __getitem__(self, index: Any) -> Any:
        return torch.full((4,), float(torch.as_tensor(index).max()))


def note_worker(worker_id: int) -> None:
    """Store the worker ID in the dataset, as a `worker_init_fn`."""
    info = get_worker_info()
    assert info is not None
    info.dataset.note = worker_id


@dataclass(slots=True)
class Slotted:
    pulses: torch.Tensor


def to_slotted(samples: list[float]) -> Slotted:
    return Slotted(torch.tensor(samples))


def to_dict(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"event_id": torch.tensor([int(torch.as_tensor(s).max()) for s in samples])}


def with_own_functions(**options: Any) -> DataLoader[Any]:
    init = note_worker if options.get("num_workers") else None
    own: Any = {"collate_fn": to_dict, "worker_init_fn": init, "generator": torch.Generator()}
    return DataLoader(ROWS, BATCH, **own, **options)


def persistent(*, num_workers: int) -> DataLoader[Any]:
    return DataLoader(ROWS, BATCH, num_workers=num_workers, persistent_workers=num_workers > 0)


ROWS, BATCH_SAMPLER = Rows(BATCH * BATCHES), BatchSampler(range(BATCH * BATCHES), BATCH, False)
KINDS: dict[str, Any] = {
    "map-style": lambda **o: DataLoader(ROWS, BATCH, shuffle=True, **o),
    "iterable": lambda **o: DataLoader(Stream(BATCH * BATCHES), BATCH, **o),
    "without batching": lambda **o: DataLoader(ROWS, batch_size=None, **o),
    "own functions": with_own_functions,
    "own batch sampler": lambda **o: DataLoader(ROWS, batch_sampler=BATCH_SAMPLER, **o),
    "persistent": persistent,
    "list of batches": lambda **o: [torch.zeros(BATCH, 4)] * BATCHES,
}
