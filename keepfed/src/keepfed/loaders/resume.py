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

The order of an epoch is computed from the seed and the epoch, so a position is two numbers. Workers
and prefetchers run ahead of the loop, so a batch counts only when the loop receives it. An
`IterableDataset` has no such position, because the number of workers decides which worker serves a
sample. `keepfed.loaders.contract` describes epochs, ranks and states of all our loaders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from keepfed.checks import open_regular
from keepfed.files import replacing
from keepfed.loaders.contract import EpochLoader, WorkerSlot, epoch_rng
from keepfed.reading import reading


class Order(TypedDict, total=False):
    """Options that loaders pass on to `IndexBatches`, which describes them."""

    shuffle: bool
    seed: int
    drop_last: bool
    slot: WorkerSlot | None


class IndexBatches(EpochLoader):
    """Base of loaders with a known number of samples, and thus a position in an epoch.

    All ranks deal their batches from one order: in each step they take the next `world_size` x
    `batch_size` samples. The position is therefore the same on every rank, and a run may continue
    with a different number of workers, batch size or number of ranks.
    """

    def __init__(
        self,
        n_samples: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        slot: WorkerSlot | None = None,
        drop_last: bool = False,
    ):
        """Begin with epoch 0.

        Args:
            n_samples: Length of the dataset.
            batch_size: Samples in a batch of one rank.
            shuffle: Whether each epoch has a new order. False keeps the order of the dataset.
            seed: Determines the order, together with the epoch.
            slot: Rank of these batches. None for the rank of the process.
            drop_last: Whether incomplete last batches are dropped.

        Raises:
            ValueError: If a number is too small.
        """
        for name, number in {"n_samples": n_samples, "batch_size": batch_size}.items():
            if number < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {number}.")
        self.n_samples, self.batch_size, self.drop_last = n_samples, batch_size, drop_last
        self.shuffle, self.seed = shuffle, seed
        made_by = {"n_samples": n_samples, "shuffle": shuffle, "seed": seed}
        super().__init__(made_by, slot, changes=shuffle)

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next loop."""
        return -(-(self._end(self._start) - self._start) // self._step)

    def deal(self) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of each remaining batch of this rank, int64 (batch,)."""
        return self._noted(self._deal)

    def _deal(self) -> Iterator[NDArray[np.int64]]:
        here, start = self.here(), self._start
        mine = self._order()[start : self._end(start)][here.rank :: here.world_size]
        firsts = range(0, len(mine), self.batch_size)[here.worker :: here.num_workers]
        return (mine[first : first + self.batch_size] for first in firsts)

    def _order(self) -> NDArray[np.int64]:
        """Return the indices of all samples in the order of this epoch."""
        if not self.shuffle:
            return np.arange(self.n_samples)
        rng = epoch_rng(self.seed, self.epoch.value, WorkerSlot())  # the same on all ranks
        return rng.permutation(self.n_samples)

    def _step_samples(self) -> tuple[int, int]:
        return self._step, self.n_samples

    @property
    def _step(self) -> int:
        return self.batch_size * self.here().world_size

    def _end(self, start: int) -> int:
        """Return the end of the last batch, so that all ranks have the same number of batches."""
        rest = (self.n_samples - start) % self._step
        is_dropped = self.drop_last or rest < self.here().world_size
        return self.n_samples - rest if is_dropped else self.n_samples


class ResumableBatches(IndexBatches, Sampler[list[int]]):
    """A `batch_sampler` for DataLoader. `follow` counts its position."""

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.deal())


def sample_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return a generator for one sample in one epoch, with the same numbers in every worker.

    Those of `worker_rng` change after a restart.

        rng = sample_rng(1, self.epoch.value, index)  # in __getitem__; epoch: batches.epoch
    """
    return np.random.default_rng([seed, epoch, index + 1])  # NumPy ignores a 0 at the end


def save_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write `state` with torch.save, so that a crash leaves either the old or the new file.

    Call this from one process only, by convention from rank 0.

    Raises:
        KeepfedError: If the disk is full, or the folder cannot be written.
    """
    with replacing(Path(path)) as file:
        torch.save(dict(state), file)


def load_checkpoint(path: str | Path) -> dict[str, Any] | None:
    """Return the state that was saved last, with CPU tensors, or None if there is none.

    Raises:
        ReadError: If the file is damaged, or holds more than tensors, numbers and text.
    """
    if not os.path.lexists(path):  # a dead link is an error
        return None
    with reading(path, step="Use an older checkpoint, or delete it to begin anew"):
        try:
            with open_regular(path) as file:
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except UnpicklingError as error:  # whose text advises to run the code in the file
            problem = "it is damaged, or holds more than tensors, numbers and text"
            raise ValueError(problem) from error
        if not isinstance(state, dict):
            raise ValueError("it is no state of `save_checkpoint`")
    return state
