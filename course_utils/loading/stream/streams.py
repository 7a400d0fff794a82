"""Streams of shards: an order for each epoch, a share for each place, and a known length.

A subclass of `ShardedStream` says how shards are read and how many samples each has; it then serves
every sample in exactly one worker of one rank. `EventShards` does so for events, and is the form
that a dataset too large for random access takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import IterableDataset

from course_utils.loading.contract import EpochLoader, Place, epoch_rng
from course_utils.loading.events import MemmapEvents, Sample
from course_utils.loading.stream.shuffling import (
    blocks,
    buffer_shuffle,
    interleave,
    shuffled,
    split,
)

Shard = TypeVar("Shard")
Served = TypeVar("Served", covariant=True)


class ShardedStream(EpochLoader, IterableDataset[Served], ABC, Generic[Served, Shard]):
    """The samples of shards. One worker of one rank reads each shard.

    The order depends only on (seed, epoch, rank, worker). If there are more workers than shards,
    some workers serve nothing.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        shuffle_shards: bool,
        buffer: int,
        seed: int,
        place: Place | None = None,
    ):
        """Read nothing yet.

        Args:
            shards: All shards, in the order on disk.
            shuffle_shards: Whether each epoch has the shards in another order.
            buffer: Samples that a worker holds to draw from; 1 does not shuffle samples.
            seed: Determines the order, together with the epoch.
            place: Rank that this stream serves; None: the rank of the process.

        Raises:
            ValueError: If `buffer` is less than 1.
        """
        if buffer < 1:
            raise ValueError(f"`buffer` must be at least 1, but is {buffer}.")
        self.shards = list(shards)
        self.shuffle_shards, self.buffer, self.seed = shuffle_shards, buffer, seed
        made_by = {"shards": len(self.shards), "shuffle_shards": shuffle_shards, "seed": seed}
        super().__init__(made_by, place, changes=shuffle_shards or buffer > 1)

    @abstractmethod
    def read(self, shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield the samples of these shards, as they are drawn from the buffer."""

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
        """Return the number of samples of this rank in this epoch, all its workers together."""
        whole_rank = replace(self.here(), worker=0, num_workers=1)
        return sum(map(self.size, split(self._order(), whole_rank)))

    def count_batches(
        self, batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> int:
        """Return how many batches this rank will see in this epoch; `len(loader)` cannot know.

        Each worker makes its batches of its own shards only. So each has a last batch that is not
        full, and `drop_last` drops one per worker.
        """
        workers = max(1, num_workers)
        places = (replace(self.here(), worker=n, num_workers=workers) for n in range(workers))
        counts = (sum(map(self.size, split(self._order(), place))) for place in places)
        return sum(n // batch_size if drop_last else -(-n // batch_size) for n in counts)

    def _order(self) -> list[Shard]:
        if not self.shuffle_shards:
            return self.shards
        return shuffled(self.shards, epoch_rng(self.seed, self.epoch.value))


class EventShards(ShardedStream[Sample, range]):
    """The events of a folder as contiguous shards, each of which one worker of one rank reads.

        stream = EventShards(data_path("events"), shards=16, buffer=500)
        loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
        for epoch in range(3):
            stream.set_epoch(epoch)
            for batch in loader: ...

    A worker holds `buffer` events and at most `interleave` x `chunk` that it has read ahead.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        shards: int = 32,
        interleave: int = 4,
        chunk: int = 64,
        buffer: int = 1000,
        shuffle_shards: bool = True,
        seed: int = 0,
        place: Place | None = None,
        fs: Any = None,
    ):
        """Read labels and offsets, and no pulses.

        Args:
            folder: events as make_events writes them.
            shards: number of contiguous runs, equal to within one event.
            interleave: shards that a worker reads in turn.
            chunk: events that a worker reads with one request.
            buffer: events that a worker holds to draw from; 1 draws nothing.
            shuffle_shards: whether the order of shards changes; False: order on disk.
            seed: what the order depends on, besides the epoch.
            place: rank that this stream serves; None: the rank of the process.
            fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.

        Raises:
            FileNotFoundError: the folder holds no events, or not in this format.
            ValueError: a number is less than 1, or there are more shards than events.
        """
        self.events = MemmapEvents(folder, fs=fs)
        for name, value in {"interleave": interleave, "chunk": chunk}.items():
            if value < 1:
                raise ValueError(f"{name}={value} cannot be; take at least 1.")
        if not 1 <= shards <= len(self.events):
            raise ValueError(
                f"{len(self.events):,} events make no {shards:,} shards; take 1 to "
                f"{len(self.events):,}."
            )
        edges = np.linspace(0, len(self.events), shards + 1).astype(int).tolist()
        super().__init__(
            [range(*pair) for pair in pairwise(edges)],
            shuffle_shards=shuffle_shards,
            buffer=buffer,
            seed=seed,
            place=place,
        )
        self.interleave, self.chunk = interleave, chunk

    def read(self, shards: Sequence[range]) -> Iterator[Sample]:
        """Yield events of `interleave` shards in turn, `chunk` at a time."""
        return interleave(map(self._read, shards), self.interleave)

    def close(self) -> None:
        """Close the files of this process; the next loop opens them again."""
        super().close()
        self.events.close()

    def size(self, shard: range) -> int:
        """Return the number of events of a shard."""
        return len(shard)

    def _read(self, shard: range) -> Iterator[Sample]:
        for run in blocks(len(shard), self.chunk):
            yield from self.events.__getitems__(shard[run.start : run.stop])
