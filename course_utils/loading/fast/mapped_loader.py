"""Load shuffled batches from a mapped file in the process that trains: what all such loaders share.

A worker would have to send each batch to the main process, and for small samples that costs more
than to make it. Here a batch is one gather from the page cache into memory that is used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch.utils.data import IterableDataset, get_worker_info

from course_utils.loading.prefetch import ThreadPrefetcher
from course_utils.loading.stream import Place, epoch_rng
from course_utils.loading.workers import SharedEpoch

B = TypeVar("B", covariant=True)


class Source(Protocol[B]):
    """A file from which a whole batch can be read at once."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def buffer(self, batch_size: int) -> torch.Tensor:
        """Return memory for a batch."""
        ...

    def read(self, indices: torch.Tensor, buffer: torch.Tensor) -> B:
        """Return the samples at `indices`, int64 (batch,), as views of `buffer`."""
        ...


class MappedLoader(IterableDataset[B], Generic[B]):
    """Give every sample exactly once an epoch, in batches shuffled over the whole file.

        for epoch in range(3):
            loader.set_epoch(epoch)
            for batch in loader: ...

    A batch stays as it is until `buffers` − `ahead` more were asked for; then its memory is used
    again. Who keeps batches longer copies them, or takes `buffers=None`. Set
    `torch.set_num_threads(1)`: to share so small a copy among threads takes longer than the copy.

    In a `DataLoader(loader, batch_size=None, num_workers=2)` each worker makes every second batch,
    in memory of its own; the batches are the same, and so is their order.
    """

    opens: ClassVar[Any]  # what makes a Source of a path

    def __init__(
        self,
        path: str | Path,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        sort: bool = False,
        drop_last: bool = False,
        ahead: int = 0,
        rank: int = 0,
        world_size: int = 1,
        buffers: int | None = 2,
    ):
        """Open the file, and read no samples.

        Args:
            path: what to load from.
            batch_size: samples in a batch.
            shuffle: whether each epoch has a new order; False: the order in the file.
            seed: what the order depends on, besides the epoch.
            sort: whether a batch is read, and given, in the order of the file: kinder to a disk.
            drop_last: whether a last batch that is not full is dropped.
            ahead: batches that a thread makes while the loop works on another; 0: no thread.
            rank: whose samples these are.
            world_size: ranks that share the samples; their lengths may differ by one batch.
            buffers: batches whose memory is used in turn; None: every batch has its own.

        Raises:
            OSError: the file is missing, corrupted or of another kind.
            ValueError: a number is too small.
        """
        self._at_least("batch_size", batch_size, 1)
        self._at_least("ahead", ahead, 0)
        if buffers is not None:
            self._at_least("buffers", buffers, 1 + ahead)
        self.source: Source[B] = self.opens(path)
        self.batch_size, self.seed, self.ahead, self.buffers = batch_size, seed, ahead, buffers
        self.shuffle, self.sort, self.drop_last = shuffle, sort, drop_last
        self.place = Place(rank, world_size)
        self.epoch = SharedEpoch()

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch; workers that persist see it too."""
        self.epoch.value = epoch

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        samples = len(range(self.place.rank, len(self.source), self.place.world_size))
        return (samples + (0 if self.drop_last else self.batch_size - 1)) // self.batch_size

    def __iter__(self) -> Iterator[B]:
        batches = self._batches()
        return iter(ThreadPrefetcher(batches, self.ahead)) if self.ahead else batches

    def _order(self) -> torch.Tensor:
        """Return the indices of this rank in the order of this epoch."""
        indices = torch.arange(len(self.source))
        if self.shuffle:
            drawn = epoch_rng(self.seed, self.epoch.value).integers(2**63)  # the same on all ranks
            generator = torch.Generator().manual_seed(int(drawn))
            indices = torch.randperm(len(self.source), generator=generator)
        return indices[self.place.rank :: self.place.world_size]

    def _batches(self) -> Iterator[B]:
        chosen = torch.split(self._order(), self.batch_size)[: len(self)]
        buffers, worker = self.buffers, get_worker_info()
        if worker is not None:
            chosen, buffers = chosen[worker.id :: worker.num_workers], None  # a batch is sent as is
        ring = [self.source.buffer(self.batch_size) for _ in range(buffers or 0)]
        for number, indices in enumerate(chosen):
            if self.sort:
                indices.numpy().sort()
            buffer = ring[number % len(ring)] if ring else self.source.buffer(self.batch_size)
            yield self.source.read(indices, buffer)

    @staticmethod
    def _at_least(name: str, value: int, least: int) -> None:
        if value < least:
            raise ValueError(f"{name}={value} cannot be; take at least {least}.")
