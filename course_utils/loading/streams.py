"""Stream events in shards: the form that a dataset too large for random access takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset

from course_utils.loading.datasets import MemmapEvents
from course_utils.loading.events import Sample
from course_utils.loading.shuffling import blocks, buffer_shuffle, epoch_rng, interleave, shuffled
from course_utils.loading.splitting import KnowsItsRank, count_batches, split
from course_utils.loading.workers import SharedEpoch


class EventShards(KnowsItsRank, IterableDataset[Sample]):
    """The events of a folder as contiguous shards, each of which one worker of one rank reads.

        stream = EventShards(data_path("events"), shards=16, buffer=500)
        loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
        for epoch in range(3):
            stream.set_epoch(epoch)
            for batch in loader: ...

    The order depends on (seed, epoch, rank, worker) and on nothing else. A worker holds `buffer`
    events and at most `interleave` x `chunk` that it has read ahead.
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
            fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.

        Raises:
            FileNotFoundError: the folder holds no events, or not in this format.
            ValueError: a number is less than 1, or there are more shards than events.
        """
        self.events = MemmapEvents(folder, fs=fs)
        for name, value in {"interleave": interleave, "chunk": chunk, "buffer": buffer}.items():
            if value < 1:
                raise ValueError(f"{name}={value} cannot be; take at least 1.")
        if not 1 <= shards <= len(self.events):
            raise ValueError(
                f"{len(self.events):,} events make no {shards:,} shards; take 1 to "
                f"{len(self.events):,}."
            )
        edges = np.linspace(0, len(self.events), shards + 1).astype(int).tolist()
        self.shards = [range(*pair) for pair in pairwise(edges)]
        self.interleave, self.chunk, self.buffer = interleave, chunk, buffer
        self.shuffle_shards, self.seed = shuffle_shards, seed
        self.epoch = SharedEpoch()

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch; workers that persist see it too."""
        self.epoch.value = epoch

    def __len__(self) -> int:
        """Return the number of events of this rank in this epoch, all its workers together."""
        whole_rank = replace(self.here(), worker=0, num_workers=1)
        return sum(len(shard) for shard in split(self._order(), whole_rank))

    def __iter__(self) -> Iterator[Sample]:
        here = self.here()
        streams = map(self._read, split(self._order(), here))
        own = epoch_rng(self.seed, self.epoch.value, here)
        return buffer_shuffle(interleave(streams, self.interleave), self.buffer, own)

    def count_batches(
        self, batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> int:
        """Return how many batches this rank will see in this epoch; `len(loader)` cannot know."""
        here = self.here()
        return count_batches(
            [len(shard) for shard in self._order()],
            batch_size,
            rank=here.rank,
            world_size=here.world_size,
            num_workers=num_workers,
            drop_last=drop_last,
        )

    def _order(self) -> list[range]:
        """Return the shards in the order of this epoch, which is the same in all places."""
        if not self.shuffle_shards:
            return self.shards
        return shuffled(self.shards, epoch_rng(self.seed, self.epoch.value))

    def _read(self, shard: range) -> Iterator[Sample]:
        for run in blocks(len(shard), self.chunk):
            yield from self.events.__getitems__(shard[run.start : run.stop])
