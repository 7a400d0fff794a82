"""Base class for streams of shards, with shuffling, splitting and a known length.

A subclass of `ShardedStream` defines how shards are read and how many samples each has. Then every
sample is served by exactly one worker of one rank. Use a stream for data that are too large for
random access.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypedDict, TypeVar

from torch.utils.data import IterableDataset

from keepfed.loaders.contract import EpochLoader, WorkerSlot, epoch_rng
from keepfed.loaders.stream.shuffling import buffer_shuffle, shuffled, split

Shard = TypeVar("Shard")
Served = TypeVar("Served", covariant=True)


class StreamOptions(TypedDict, total=False):
    """The options of every `ShardedStream`, which describes them."""

    shuffle_shards: bool
    buffer: int
    seed: int
    slot: WorkerSlot | None


class ShardedStream(EpochLoader, IterableDataset[Served], ABC, Generic[Served, Shard]):
    """Stream of the samples of shards. Exactly one worker of one rank reads each shard.

    The order depends only on (seed, epoch, rank, worker). If there are more workers than shards,
    some workers serve nothing.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        shuffle_shards: bool = True,
        buffer: int = 1000,
        seed: int = 0,
        slot: WorkerSlot | None = None,
    ):
        """Read nothing yet.

        Args:
            shards: All shards, in the order on disk.
            shuffle_shards: Whether each epoch reads the shards in a different order.
            buffer: Size of each worker's shuffle buffer, in samples. 1 does not shuffle samples.
            seed: Determines the order, together with the epoch.
            slot: Rank that this stream serves. None for the rank of the process.

        Raises:
            ValueError: If `buffer` is less than 1.
        """
        if buffer < 1:
            raise ValueError(f"`buffer` must be at least 1, but is {buffer}.")
        self.shards = list(shards)
        self.shuffle_shards, self.buffer, self.seed = shuffle_shards, buffer, seed
        made_by = {"shards": len(self.shards), "shuffle_shards": shuffle_shards, "seed": seed}
        super().__init__(made_by, slot, changes=shuffle_shards or buffer > 1)

    @abstractmethod
    def read(self, shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield the samples of these shards, in the form that enters the shuffle buffer."""

    @abstractmethod
    def size(self, shard: Shard) -> int:
        """Return the number of samples of a shard."""

    def __iter__(self) -> Iterator[Served]:
        return self._noted(self._samples)

    def _samples(self) -> Iterator[Any]:
        here = self.here()
        own = epoch_rng(self.seed, self.epoch.value, here)
        return buffer_shuffle(self.read(split(self._order(), here)), self.buffer, own)

    def __len__(self) -> int:
        """Return the number of samples of this rank in this epoch, over all its workers."""
        whole_rank = replace(self.here(), worker=0, num_workers=1)
        return sum(map(self.size, split(self._order(), whole_rank)))

    def count_batches(
        self, batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> int:
        """Return the number of batches of this rank in this epoch, which `len(loader)` gets wrong.

        Each worker builds batches from its own shards, so each may have an incomplete last one.
        """
        workers = max(1, num_workers)
        slots = (replace(self.here(), worker=n, num_workers=workers) for n in range(workers))
        counts = (sum(map(self.size, split(self._order(), slot))) for slot in slots)
        return sum(n // batch_size if drop_last else -(-n // batch_size) for n in counts)

    def _order(self) -> list[Shard]:
        if not self.shuffle_shards:
            return self.shards
        return shuffled(self.shards, epoch_rng(self.seed, self.epoch.value))
