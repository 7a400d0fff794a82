"""Resume a training exactly where it stopped, without losing or repeating a sample.

    batches = ResumableBatches(len(events), 64, seed=1)
    loader = DataLoader(events, batch_sampler=batches, num_workers=2, collate_fn=pad_collate)
    if saved := load_checkpoint("run.pt"):
        model.load_state_dict(saved["model"])
        batches.load_state_dict(saved["batches"])
    while batches.epoch.value < 10:
        for batch in batches.follow(loader):
            train(model, batch)
            state = {"model": model.state_dict(), "batches": batches.state_dict()}
            save_checkpoint("run.pt", state)

The order of an epoch is computed from the seed and the epoch. So a position in it is two numbers,
and a restart reads only the samples that it uses. Workers and prefetchers run ahead of the loop,
and the batches that they hold are lost with the process, so a batch counts when the loop takes it.
An `IterableDataset` has no such position, because the number of workers decides which worker serves
a sample. `keepfed.loaders.contract` describes epochs, ranks and states of all our loaders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from keepfed.loaders.contract import EpochLoader, Place, block_order, epoch_rng

_TOGETHER = 4  # blocks whose samples are shuffled as one


class IndexBatches(EpochLoader):
    """Base of loaders that know how many samples there are, and so have a position in an epoch.

    All ranks deal their batches from one order: in each step they take the next `world_size` x
    `batch_size` samples. The position is therefore the same on every rank, and a run may
    continue with other workers, another batch size or another number of ranks.
    """

    def __init__(
        self,
        n_samples: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        block: int | None = None,
        seed: int = 0,
        place: Place | None = None,
        drop_last: bool = False,
    ):
        """Begin with epoch 0.

        Args:
            n_samples: Length of the dataset.
            batch_size: Samples in a batch of one rank.
            shuffle: Whether each epoch has a new order; False: the order of the dataset.
            block: Neighbouring samples that stay together: a few blocks are shuffled as one, as in
                `BlockSampler`. None: all samples are shuffled.
            seed: Determines the order, together with the epoch.
            place: Rank that these batches are for; None: the rank of the process.
            drop_last: Whether last batches that are not full are dropped.

        Raises:
            ValueError: If a number is too small.
        """
        for name, number in {
            "n_samples": n_samples,
            "batch_size": batch_size,
            "block": block,
        }.items():
            if number is not None and number < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {number}.")
        self.n_samples, self.batch_size, self.drop_last = n_samples, batch_size, drop_last
        self.shuffle, self.block, self.seed = shuffle, block, seed
        made_by = {"n_samples": n_samples, "shuffle": shuffle, "block": block, "seed": seed}
        super().__init__(made_by, place, changes=shuffle)

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next loop."""
        return -(-(self._end(self._start) - self._start) // self._step)

    def deal(self) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of each batch of this rank that is left, int64 (batch,)."""
        return self._noted(self._deal)

    def _deal(self) -> Iterator[NDArray[np.int64]]:
        here, start = self.here(), self._start
        mine = self._order()[start : self._end(start)][here.rank :: here.world_size]
        firsts = range(0, len(mine), self.batch_size)[here.worker :: here.num_workers]
        return (mine[first : first + self.batch_size] for first in firsts)

    def _order(self) -> NDArray[np.int64]:
        """Return the indices of all samples, as this epoch serves them."""
        if not self.shuffle:
            return np.arange(self.n_samples)
        epoch = self.epoch.value
        own = epoch_rng(self.seed, epoch, Place())  # the same on all ranks
        if self.block is None:
            return own.permutation(self.n_samples)
        rng = epoch_rng(self.seed, epoch)
        order, ends = block_order(self.n_samples, self.block, _TOGETHER, rng)
        for group in np.split(order, ends):
            own.shuffle(group)  # in place
        return order

    def _after_step(self, taken: int) -> int:
        return min(taken + self._step, self.n_samples)

    @property
    def _step(self) -> int:
        return self.batch_size * self.here().world_size

    def _end(self, start: int) -> int:
        """Return where in the order the last batch ends, so that all ranks have equally many."""
        rest = (self.n_samples - start) % self._step
        is_dropped = self.drop_last or rest < self.here().world_size
        return self.n_samples - rest if is_dropped else self.n_samples


class ResumableBatches(IndexBatches, Sampler[list[int]]):
    """The `batch_sampler` of a `DataLoader`, with a position that `follow` counts."""

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.deal())


def sample_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the random numbers of one sample in one epoch: the same ones in whatever worker.

    Those of `worker_rng` depend on the worker and on what it drew before, so a restart has others.

        rng = sample_rng(1, self.epoch.value, index)  # in __getitem__; epoch: batches.epoch
    """
    return np.random.default_rng([seed, epoch, index + 1])  # to NumPy, a last 0 is nothing


def save_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write `state` with torch.save: a kill at any moment leaves the former file or this one.

    One process may write, of several ranks by custom that of rank 0.
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())  # else a disk may rename it before it has all of it
    unfinished.replace(path)


def load_checkpoint(path: str | Path) -> dict[str, Any] | None:
    """Return what was saved last, its tensors in the memory of the CPU; None: nothing was yet."""
    if not Path(path).exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
