"""What streams of shards have in common: an order for each epoch, a share for each place, a length.

A subclass says how shards are read and how many samples each has; it then serves every sample in
exactly one worker of one rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from torch.utils.data import IterableDataset, get_worker_info

from course_utils.loading.stream.shuffling import buffer_shuffle, epoch_rng, shuffled
from course_utils.loading.stream.splitting import Place, count_batches, split
from course_utils.loading.workers import SharedEpoch

Shard = TypeVar("Shard")
Sample = TypeVar("Sample", covariant=True)


class ShardedStream(IterableDataset[Sample], ABC, Generic[Sample, Shard]):
    """The samples of shards, each shard read by one worker of one rank.

    The order depends on (seed, epoch, rank, worker) and on nothing else. A worker for which there
    is no shard serves nothing.
    """

    def __init__(self, shards: Sequence[Shard], *, shuffle_shards: bool, buffer: int, seed: int):
        """Read nothing yet.

        Args:
            shards: all there are, in the order on disk.
            shuffle_shards: whether each epoch has the shards in another order.
            buffer: samples that a worker holds to draw from; 1 draws nothing.
            seed: what the order depends on, besides the epoch.

        Raises:
            ValueError: `buffer` is less than 1.
        """
        if buffer < 1:
            raise ValueError(f"{buffer=} cannot be; take at least 1.")
        self.shards = list(shards)
        self.shuffle_shards, self.buffer, self.seed = shuffle_shards, buffer, seed
        self.epoch = SharedEpoch()
        self._sent_from: Place | None = None

    @abstractmethod
    def read(self, shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield the samples of these shards, as they are drawn from the buffer."""

    @abstractmethod
    def size(self, shard: Shard) -> int:
        """Return the number of samples of a shard."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch; workers that persist see it too."""
        self.epoch.value = epoch

    def __iter__(self) -> Iterator[Sample]:
        here = self._here()
        own = epoch_rng(self.seed, self.epoch.value, here)
        return buffer_shuffle(self.read(split(self._order(), here)), self.buffer, own)

    def __len__(self) -> int:
        """Return the number of samples of this rank in this epoch, all its workers together."""
        whole_rank = replace(self._here(), worker=0, num_workers=1)
        return sum(map(self.size, split(self._order(), whole_rank)))

    def count_batches(
        self, batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> int:
        """Return how many batches this rank will see in this epoch; `len(loader)` cannot know."""
        here = self._here()
        return count_batches(
            list(map(self.size, self._order())),
            batch_size,
            rank=here.rank,
            world_size=here.world_size,
            num_workers=num_workers,
            drop_last=drop_last,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Send the rank along: a worker that is not forked is in no process group to ask."""
        return {**self.__dict__, "_sent_from": Place.here()}

    def _here(self) -> Place:
        """Return the place of this copy: the rank it was sent from, and the worker it is in."""
        here = Place.here()
        if self._sent_from is None or get_worker_info() is None:
            return here
        return replace(self._sent_from, worker=here.worker, num_workers=here.num_workers)

    def _order(self) -> list[Shard]:
        """Return the shards in the order of this epoch, which is the same in all places."""
        if not self.shuffle_shards:
            return self.shards
        return shuffled(self.shards, epoch_rng(self.seed, self.epoch.value))
