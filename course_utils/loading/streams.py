"""Stream events in shards: the form that a dataset too large for random access takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset

from course_utils.loading.events import Sample


class EventShards(IterableDataset[Sample]):
    """The events of a folder as contiguous shards, each of which one worker of one rank reads.

        stream = EventShards(data_path("events"), shards=16, buffer=500)
        loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
        for epoch in range(3):
            stream.set_epoch(epoch)
            for batch in loader: ...

    The order is that of (seed, epoch, rank, worker) and nothing else. Batch here, with
    `batch_size=None` in the loader, by `batched(stream, size)`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        shards: int = 32,
        interleave: int = 1,
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
            buffer: events that a worker holds to draw from; 1 draws nothing.
            shuffle_shards: whether the order of shards changes; False: order on disk.
            seed: what the order depends on, besides the epoch.
            fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.
        """
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch; workers that persist see it too."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of events of this rank in this epoch, all its workers together."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError

    def count_batches(
        self, batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> int:
        """Return how many batches this rank will see in this epoch; `len(loader)` cannot know."""
        raise NotImplementedError
