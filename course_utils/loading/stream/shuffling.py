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

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from torch import distributed
from torch.utils.data import Sampler, get_worker_info

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a copy of a dataset runs: in which worker of which rank, both counted from 0."""

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1  # 1 also where the loader has none and the main process does the work

    def __post_init__(self) -> None:
        for name, number, count in (
            ("rank", self.rank, self.world_size),
            ("worker", self.worker, self.num_workers),
        ):
            if not 0 <= number < count:
                raise ValueError(
                    f"There is no {name} {number} among {count}; {name}s count from 0."
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
        found = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
        if distributed.is_available() and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        elif not any(found.values()):
            rank, world_size = 0, 1
        else:
            try:
                rank, world_size = (int(value or "") for value in found.values())
            except ValueError as error:
                raise ValueError(
                    f"The environment says RANK={found['RANK']} and WORLD_SIZE="
                    f"{found['WORLD_SIZE']}; set both to whole numbers (torchrun does), or neither."
                ) from error
        worker = get_worker_info()
        if worker is None:
            return cls(rank, world_size)
        return cls(rank, world_size, worker.id, worker.num_workers)


def split(items: Sequence[T], place: Place) -> list[T]:
    """Return the items of one place: first every rank takes its own, of those every worker.

    Together the places have every item exactly once; where items are fewer than places, some have
    none.
    """
    return list(items[place.rank :: place.world_size][place.worker :: place.num_workers])


def epoch_rng(seed: int, epoch: int, place: Place | None = None) -> np.random.Generator:
    """Return the random numbers of one epoch: the same ones whenever it is asked for.

    Without a place they are the same everywhere: all must agree on the order of shards before they
    split them. With one they are that worker's own: else the batches of two ranks would be drawn
    alike.
    """
    # counted from 1: to NumPy, zeros at the end of a seed are nothing
    own = [place.rank + 1, place.worker + 1] if place else []
    return np.random.default_rng([seed, epoch, *own])


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


class BlockSampler(Sampler[int]):
    """Draw blocks in random order, and shuffle the samples of a few blocks together.

    Samples of a batch then lie in few places on disk: `__getitems__` reads each with one request.

        loader = DataLoader(events, 64, sampler=BlockSampler(len(events), 256, together=4))
        loader.sampler.set_epoch(3)
    """

    def __init__(
        self,
        n_samples: int,
        block: int,
        *,
        together: int = 4,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        """Cut the samples into blocks.

        Args:
            n_samples: length of the dataset.
            block: samples in a contiguous run.
            together: blocks whose samples are shuffled as one; 1 shuffles within blocks only.
            seed: what the order depends on, besides the epoch.
            rank: whose samples these are.
            world_size: ranks that share the samples; each block goes to one of them.
        """
        if together < 1:
            raise ValueError(f"{together} blocks together cannot be; take at least 1.")
        self.blocks = blocks(n_samples, block)
        self.together, self.seed, self.epoch = together, seed, 0
        self.place = Place(rank, world_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch; a sampler stays in the main process, so this does."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        own = epoch_rng(self.seed, self.epoch, self.place)
        for group in batched(self._blocks(), self.together):
            yield from shuffled([index for block in group for index in block], own)

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks())

    def _blocks(self) -> list[range]:
        order = shuffled(self.blocks, epoch_rng(self.seed, self.epoch))
        return split(order, self.place)
