"""Split and shuffle data that are too large for a random order, in a chain of generators.

    rng = epoch_rng(seed, epoch)
    slot = WorkerSlot.here()
    shards = split(shuffled(shards, rng), slot)
    stream = interleave(map(read, shards), 4)
    for sample in map(decode, buffer_shuffle(stream, 1000, epoch_rng(seed, epoch, slot))): ...

Every step takes a stream and yields a stream that contains every item exactly once. An
`IterableDataset` is copied to every worker of every rank, and each copy runs the whole `__iter__`.
Without `split`, every sample is therefore served once per copy. Shuffle before you decode, because
a buffer of paths or encoded bytes is much smaller than a buffer of images.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
from torch.utils.data import Sampler

from keepfed.loaders.contract import EpochLoader, WorkerSlot, block_order, epoch_rng

T = TypeVar("T")


def split(items: Sequence[T], slot: WorkerSlot) -> list[T]:
    """Return the items of one slot: they are divided among ranks first, then among workers.

    Every item belongs to exactly one slot. If there are fewer items than slots, some slots get
    an empty list.
    """
    return list(items[slot.rank :: slot.world_size][slot.worker :: slot.num_workers])


def shuffled(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    """Return a list of the items in random order. Use it for shards and blocks, not for samples."""
    return [items[index] for index in rng.permutation(len(items))]


def blocks(n_samples: int, size: int) -> list[range]:
    """Split the samples into contiguous runs of `size`. The last run may be shorter."""
    if size < 1:
        raise ValueError(f"`size` must be at least 1, but is {size}.")
    return [range(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def buffer_shuffle(stream: Iterable[T], size: int, rng: np.random.Generator) -> Iterator[T]:
    """Yield every item once, drawn at random from a buffer of `size` items.

    An item arrives at most `size` positions early, and on average `size` positions late. A sorted
    stream that is much longer than the buffer therefore stays nearly sorted.
    """
    if size < 1:
        raise ValueError(f"`size` must be at least 1, but is {size}.")
    source = iter(stream)
    buffer = list(islice(source, size))
    for item in source:
        drawn = int(rng.integers(size))
        buffer[drawn], item = item, buffer[drawn]
        yield item
    yield from shuffled(buffer, rng)


def interleave(streams: Iterable[Iterable[T]], k: int) -> Iterator[T]:
    """Yield items of `k` streams alternately. When a stream ends, the next one replaces it."""
    if k < 1:
        raise ValueError(f"`k` must be at least 1, but is {k}.")
    waiting = iter(streams)
    running = deque(iter(stream) for stream in islice(waiting, k))
    while running:
        stream = running.popleft()
        for item in stream:
            running.append(stream)
            yield item
            break
        else:
            running.extendleft(iter(stream) for stream in islice(waiting, 1))


def batched(stream: Iterable[T], size: int, *, drop_last: bool = False) -> Iterator[list[T]]:
    """Yield lists of `size` items. A loader with `batch_size=None` serves them unchanged."""
    if size < 1:
        raise ValueError(f"`size` must be at least 1, but is {size}.")
    source = iter(stream)
    while batch := list(islice(source, size)):
        if len(batch) == size or not drop_last:
            yield batch


class BlockSampler(EpochLoader, Sampler[int]):
    """Sampler that draws blocks in random order, and shuffles a few blocks together.

    The samples of a batch are then stored in a few contiguous ranges, and `__getitems__` can read
    each range with one request.

        loader = DataLoader(events, 64, sampler=BlockSampler(len(events), 256, together=4))
        loader.sampler.set_epoch(3)

    Each rank takes one contiguous part of the shuffled order. The parts are equally long, so two
    ranks may share a block. To resume within an epoch, use
    `ResumableBatches`, which shuffles all samples.
    """

    def __init__(
        self,
        n_samples: int,
        block: int,
        *,
        together: int = 4,
        seed: int = 0,
        slot: WorkerSlot | None = None,
    ):
        """Store the sizes.

        Args:
            n_samples: Length of the dataset.
            block: Samples in a contiguous run.
            together: Number of blocks that are shuffled together. 1 shuffles only within blocks.
            seed: Determines the order, together with the epoch.
            slot: Rank of these samples. None for the rank of the process.

        Raises:
            ValueError: If `block` or `together` is less than 1.
        """
        sizes = {"block": block, "together": together}
        for name, number in sizes.items():
            if number < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {number}.")
        self.n_samples, self.block, self.together, self.seed = n_samples, block, together, seed
        super().__init__({"n_samples": n_samples, **sizes, "seed": seed}, slot, changes=True)

    def __iter__(self) -> Iterator[int]:
        return self._noted(self._samples)

    def __len__(self) -> int:
        return self.n_samples // self.here().world_size

    def _samples(self) -> Iterator[int]:
        here, rng = self.here(), epoch_rng(self.seed, self.epoch.value)
        own = epoch_rng(self.seed, self.epoch.value, here)
        order, ends = block_order(self.n_samples, self.block, self.together, rng)
        first = here.rank * len(self)
        mine = order[first : first + len(self)]
        for group in np.split(mine, (ends - first).clip(0, len(mine))):
            own.shuffle(group)  # in place
            yield from group.tolist()
