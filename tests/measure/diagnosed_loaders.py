"""Loaders of every kind for the tests of `diagnose`; importable under every start method."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, get_worker_info

BATCH, BATCHES = 8, 40


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, index: Any) -> torch.Tensor:
        return torch.full((4,), float(torch.as_tensor(index).max()))


class RowStream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for value in range(first, BATCH * BATCHES, step):
            yield torch.full((4,), float(value))


class Broken(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        raise LookupError("sample 3 is corrupt")


class Deadly(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        os._exit(3)


def to_dict(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"x": torch.stack(samples)}


def note_worker(worker_id: int) -> None:
    """A `worker_init_fn` of the user's."""


KINDS: dict[str, Any] = {
    "map-style": lambda **o: DataLoader(Rows(), BATCH, shuffle=True, **o),
    "iterable": lambda **o: DataLoader(RowStream(), BATCH, **o),
    "without batching": lambda **o: DataLoader(Rows(), batch_size=None, **o),
    "own functions": lambda **o: DataLoader(
        Rows(),
        BATCH,
        collate_fn=to_dict,
        worker_init_fn=note_worker if o.get("num_workers") else None,
        generator=torch.Generator(),
        **o,
    ),
    "own batch sampler": lambda **o: DataLoader(
        Rows(), batch_sampler=BatchSampler(range(BATCH * BATCHES), BATCH, False), **o
    ),
    "sampler of batches": lambda **o: DataLoader(
        Rows(),
        sampler=BatchSampler(range(BATCH * BATCHES), BATCH, False),
        batch_size=None,
        **o,
    ),
    "persistent": lambda **o: DataLoader(
        Rows(), BATCH, **{"persistent_workers": bool(o.get("num_workers")), **o}
    ),
    "pinned": lambda **o: DataLoader(Rows(), BATCH, pin_memory=True, **o),
    "list of batches": lambda **o: [torch.zeros(BATCH, 4)] * BATCHES,
}
