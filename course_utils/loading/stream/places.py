"""Give every item of a stream to exactly one worker of one rank.

An `IterableDataset` is copied to every worker of every rank, and each copy runs the whole
`__iter__`: unless it takes its own share, every sample comes once per copy.

    for shard in split(shards, Place.here()): ...
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import distributed
from torch.utils.data import get_worker_info

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a copy of a dataset runs: in which worker of which rank.

    Raises:
        ValueError: there is no such place.
    """

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1  # 1 also where the loader has none and the main process does the work

    def __post_init__(self) -> None:
        """Refuse a rank or a worker that is not there."""
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"There is no rank {self.rank} among {self.world_size}; ranks count from 0."
            )
        if not 0 <= self.worker < self.num_workers:
            raise ValueError(
                f"There is no worker {self.worker} among {self.num_workers}; workers count from 0."
            )

    @classmethod
    def here(cls) -> Place:
        """Return the place of this very process.

        The rank is that of torch.distributed, or else that of the variables RANK and WORLD_SIZE,
        which torchrun sets before Python starts and workers inherit. A worker that is not forked
        knows neither of a process group nor of variables that were changed later: where the rank
        comes from them, ask for it in the main process and send it along, as `ShardedStream` does.

        Raises:
            ValueError: only one of the two variables is set, or they are no such place.
        """
        rank, world_size = _rank()
        worker = get_worker_info()
        if worker is None:
            return cls(rank, world_size)
        return cls(rank, world_size, worker.id, worker.num_workers)


def _rank() -> tuple[int, int]:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    found = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    rank, world_size = found.values()
    if rank is None and world_size is None:
        return 0, 1
    try:
        return int(rank or ""), int(world_size or "")
    except ValueError as error:
        raise ValueError(
            f"The environment says RANK={rank} and WORLD_SIZE={world_size}; set both to whole "
            "numbers (torchrun does), or neither."
        ) from error


def split(items: Sequence[T], place: Place) -> list[T]:
    """Return the items of one place: first every rank takes its own, of those every worker.

    Together the places have every item exactly once; where items are fewer than places, some have
    none.
    """
    return list(items[place.rank :: place.world_size][place.worker :: place.num_workers])
