"""Go on after a restart exactly where training stopped: no sample is lost, none comes twice.

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
and to go on from there nothing is read that is not used. Workers and prefetchers are ahead of the
loop, and what they hold is lost with the process: so a batch counts when the loop takes it. An
`IterableDataset` has no such position: who serves which sample depends on the number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import Sampler

from course_utils.loading.stream import BlockSampler, Place
from course_utils.loading.workers import SharedEpoch

T = TypeVar("T")


class ResumableBatches(Sampler[list[int]]):
    """The `batch_sampler` of a loader, which knows how far the loop has come.

    All ranks deal their batches from one order: batch by batch each takes its share of the next
    `world_size` x `batch_size` samples. So the position is the same on every rank, and a run may go
    on with other workers, another batch size or another number of ranks. Every rank has equally
    many batches: samples at the end that are fewer than the ranks are left out.
    """

    def __init__(
        self,
        n_samples: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        block: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
    ):
        """Begin with epoch 0.

        Args:
            n_samples: length of the dataset.
            batch_size: samples in a batch of one rank.
            shuffle: whether each epoch has a new order; False: the samples in theirs.
            block: samples that lie side by side, and of which a few blocks are shuffled together,
                as `BlockSampler` does; None: all samples are shuffled.
            seed: what the order depends on, besides the epoch.
            rank: whose batches these are.
            world_size: ranks that share the samples.
            drop_last: whether last batches that are not full are dropped.

        Raises:
            ValueError: a number is too small.
        """
        for name, number in {"n_samples": n_samples, "batch_size": batch_size}.items():
            if number < 1:
                raise ValueError(f"{name}={number} cannot be; take at least 1.")
        self.batch_size, self.drop_last = batch_size, drop_last
        self.place = Place(rank, world_size)
        self.made_by = {"n_samples": n_samples, "shuffle": shuffle, "block": block, "seed": seed}
        self.order = BlockSampler(n_samples, n_samples if block is None else block, seed=seed)
        self.epoch = SharedEpoch()
        self.taken = 0  # samples of this epoch that the loops of all ranks have taken

    def follow(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield what is left of the epoch and count it; after the last batch the epoch is the next.

        Call it on whatever the loop would loop over, such as `CudaPrefetcher(loader)`. A loop that
        was left goes on with the next batch.
        """
        for batch in loader:
            self.taken = min(self.taken + self._together, len(self.order))
            yield batch
        self.epoch.value, self.taken = self.epoch.value + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop is: the batch that it has now is taken.

        Save it with the model between two steps, never in the middle of one.
        """
        return {"epoch": self.epoch.value, "taken": self.taken, "made_by": {**self.made_by}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was called; do so before the loop begins.

        Raises:
            ValueError: it is a position in another order.
        """
        if state["made_by"] != self.made_by:
            raise ValueError(
                f"This is a position in the order that {state['made_by']} makes, and here it is "
                f"{self.made_by}: samples would be lost and others repeated. Make the batches as "
                f"they were made, or begin the next epoch: batches.epoch.value = "
                f"{state['epoch'] + 1}."
            )
        self.epoch.value, self.taken = state["epoch"], state["taken"]

    def __iter__(self) -> Iterator[list[int]]:
        self.order.set_epoch(self.epoch.value)
        order = np.arange(len(self.order))
        if self.made_by["shuffle"]:
            order = np.fromiter(self.order, np.int64, len(self.order))
        mine = order[self.taken : self._end][self.place.rank :: self.place.world_size]
        starts = range(0, len(mine), self.batch_size)
        return (mine[start : start + self.batch_size].tolist() for start in starts)

    def __len__(self) -> int:
        """Return the number of batches that are left of this epoch."""
        return -(-(self._end - self.taken) // self._together)

    @property
    def _together(self) -> int:
        """Samples that one step of all ranks takes."""
        return self.batch_size * self.place.world_size

    @property
    def _end(self) -> int:
        """Where in the order the last batch ends, if every rank is to have as many."""
        n_samples = len(self.order)
        rest = (n_samples - self.taken) % self._together
        return n_samples - rest if self.drop_last or rest < self.place.world_size else n_samples


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
