"""Stream the events of a folder in shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from course_utils.loading.events import MemmapEvents, Sample
from keepfed.loaders.stream import ShardedStream, StreamOptions, blocks, interleave


class EventShards(ShardedStream[Sample, range]):
    """The events of a folder as contiguous shards, each read by one worker of one rank.

        stream = EventShards(data_path("events"), shards=16, buffer=500)
        loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
        for epoch in range(3):
            stream.set_epoch(epoch)
            for batch in loader: ...

    A worker buffers `buffer` events, and prefetches at most `interleave` x `chunk` more.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        shards: int = 32,
        interleave: int = 4,
        chunk: int = 64,
        fs: Any = None,
        **options: Unpack[StreamOptions],
    ):
        """Read labels and offsets, but no pulses.

        Args:
            folder: Folder that make_events has written.
            shards: Number of contiguous shards. Their sizes differ by at most one event.
            interleave: Number of shards that a worker reads alternately.
            chunk: Number of events that a worker reads with one request.
            fs: fsspec file system to read from, such as `slow_storage(...)`. None: local disk.
            options: `buffer`, `shuffle_shards`, `seed` and `slot`; see `ShardedStream`.

        Raises:
            FileNotFoundError: If the folder contains no events, or not in this format.
            ValueError: If an argument is less than 1, or there are more shards than events.
        """
        self.events = MemmapEvents(folder, fs=fs)
        for name, value in {"interleave": interleave, "chunk": chunk}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value}.")
        if not 1 <= shards <= len(self.events):
            raise ValueError(
                f"Cannot split {len(self.events):,} events into {shards:,} shards. Use 1 to "
                f"{len(self.events):,} shards."
            )
        edges = np.linspace(0, len(self.events), shards + 1).astype(int).tolist()
        super().__init__([range(*pair) for pair in pairwise(edges)], **options)
        self.interleave, self.chunk = interleave, chunk

    def read(self, shards: Sequence[range]) -> Iterator[Sample]:
        """Yield events of `interleave` shards alternately, `chunk` at a time."""
        return interleave(map(self._read, shards), self.interleave)

    def close(self) -> None:
        """Close the files in this process. The next loop opens them again."""
        super().close()
        self.events.close()

    def size(self, shard: range) -> int:
        """Return the number of events of a shard."""
        return len(shard)

    def _read(self, shard: range) -> Iterator[Sample]:
        for run in blocks(len(shard), self.chunk):
            yield from self.events.__getitems__(shard[run.start : run.stop])
