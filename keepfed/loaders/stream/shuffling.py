"""Share and shuffle what is too large to shuffle: shards, blocks, a buffer, as steps of a chain.

    rng = epoch_rng(seed, epoch)
    shards = split(shuffled(shards, rng), Place.here())
    stream = interleave(map(read, shards), 4)
    for sample in map(decode, buffer_shuffle(stream, 1000, epoch_rng(seed, epoch, Place.here()))):

Every step is a plain generator: it takes a stream and gives a stream, with every item exactly once.
An `IterableDataset` is copied to every worker of every rank, and each copy runs the whole
`__iter__`: unless it takes its own share, every sample comes once per copy. Shuffle before you
decode: a buffer of paths or of bytes is small, one of images is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
from torch.utils.data import Sampler

from keepfed.loaders.contract import EpochLoader, Place, block_order, epoch_rng

T = TypeVar("T")


def split(items: Sequence[T], place: Place) -> list[T]:
    """Return the items of one place: first every rank takes its own, of those every worker.

    Together the places have every item exactly once; where items are fewer than places, some have
    none.
    """
    return list(items[place.rank :: place.world_size][place.worker :: place.num_workers])


def shuffled(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    """Return the items in a new order; made for shards and blocks, of which there are few."""
    return [items[index] for index in rng.permutation(len(items))]


def blocks(n_samples: int, size: int) -> list[range]:
    """Cut the samples into contiguous runs of `size`; the last one is shorter."""
    if size < 1:
        raise ValueError(f"A block of {size} samples cannot be; take at least 1.")
    return [range(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def buffer_shuffle(stream: Iterable[T], size: int, rng: np.random.Generator) -> Iterator[T]:
    """Yield every item once, each drawn at random from a buffer that the stream keeps full.

    Memory is `size` items. An item comes at most `size` places early, and as far late on average:
    a sorted stream that is longer than the buffer stays nearly sorted.
    """
    if size < 1:
        raise ValueError(f"A buffer of {size} items cannot be; take at least 1.")
    source = iter(stream)
    buffer = list(islice(source, size))
    for item in source:
        drawn = int(rng.integers(size))
        buffer[drawn], item = item, buffer[drawn]
        yield item
    yield from shuffled(buffer, rng)


def interleave(streams: Iterable[Iterable[T]], k: int) -> Iterator[T]:
    """Yield items of `k` streams in turn; where one ends, the next one is opened in its place."""
    if k < 1:
        raise ValueError(f"{k} streams at once cannot be; take at least 1.")
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
    """Yield lists of `size` items: a loader with `batch_size=None` passes them on as they are."""
    if size < 1:
        raise ValueError(f"A batch of {size} items cannot be; take at least 1.")
    source = iter(stream)
    while batch := list(islice(source, size)):
        if len(batch) == size or not drop_last:
            yield batch


class BlockSampler(EpochLoader, Sampler[int]):
    """Draw blocks in random order, and shuffle the samples of a few blocks together.

    Samples of a batch are then stored in few places. `__getitems__` reads each with one request.

        loader = DataLoader(events, 64, sampler=BlockSampler(len(events), 256, together=4))
        loader.sampler.set_epoch(3)

    Each rank takes one run of the shuffled blocks. Runs are equally long, so two ranks may share a
    block. For a position within an epoch take `ResumableBatches(len(events), 64, block=256)`.
    """

    def __init__(
        self,
        n_samples: int,
        block: int,
        *,
        together: int = 4,
        seed: int = 0,
        place: Place | None = None,
    ):
        """Store the sizes.

        Args:
            n_samples: Length of the dataset.
            block: Samples in a contiguous run.
            together: Blocks whose samples are shuffled as one; 1 shuffles within blocks only.
            seed: Determines the order, together with the epoch.
            place: Rank that these samples are for; None: the rank of the process.

        Raises:
            ValueError: If `block` or `together` is less than 1.
        """
        sizes = {"block": block, "together": together}
        for name, number in sizes.items():
            if number < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {number}.")
        self.n_samples, self.block, self.together, self.seed = n_samples, block, together, seed
        super().__init__({"n_samples": n_samples, **sizes, "seed": seed}, place, changes=True)

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
