"""The rules that all our loaders, samplers and streams share, and the code that keeps them.

Every `EpochLoader` keeps this contract: `RaggedLoader`, `ImageLoader`, `ResumableBatches`,
`LengthBuckets`, `BlockSampler` and the streams (`EventShards`, `stream_shards`).

- **Rank.** `slot=None` means the rank of this process: from the process group, else from RANK and
  WORLD_SIZE. The loader reads the rank when a loop or `len` begins, and sends it to its workers.
  Together, the ranks serve every sample once. Loaders and samplers give all ranks the same
  number of batches. They leave out a few samples at the end of an epoch, fewer than there are
  ranks. A rank of a stream serves complete shards, so ranks of a stream may differ.
- **Epoch.** After `set_epoch(e)` the next loop serves epoch e from its beginning. A complete loop
  over `loader.follow(...)` advances to the next epoch. The loaders of ragged batches, images
  and windows follow themselves in a plain loop. Without either, a stream or sampler serves
  the same order again, and warns once. It does not advance by itself, because workers run ahead of
  a loop: after an early exit, workers and ranks would disagree about the epoch.
- **State.** `load_state_dict(loader.state_dict())` resumes after the batch that the loop holds,
  even with another batch size, number of workers or number of ranks. `set_epoch` with the epoch of
  the loaded state keeps that position. A stream or a `BlockSampler` has no position: its epoch
  begins again, with a warning.
- **Length.** `len` is what the next loop serves on this rank: batches, or samples of a stream or a
  `BlockSampler`.
- **End.** A loop that is left early releases its threads, workers and files, and the next loop
  begins the epoch again. `close()` also ends loops that an exception holds. The loader can be
  used again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from keepfed.limits import get_rank, has_group
from keepfed.loaders.workers import SharedEpoch

T = TypeVar("T")
Loop = Generator[T, None, None]
_NONE = -1  # value that means "no epoch"


@dataclass(frozen=True)
class WorkerSlot:
    """One (rank, worker) pair, which serves one share of the samples. Both count from 0."""

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1  # also 1 if the main process loads the data itself

    def __post_init__(self) -> None:
        for name, number, total, count in (
            ("rank", self.rank, "world_size", self.world_size),
            ("worker", self.worker, "num_workers", self.num_workers),
        ):
            if not 0 <= number < count:
                raise ValueError(
                    f"`{name}` is {number}, but `{total}` is {count}. Use a `{name}` of at least 0 "
                    f"and less than `{total}`."
                )

    @classmethod
    def here(cls) -> WorkerSlot:
        """Return the slot of this process.

        A worker that is not forked has no process group, and does not see variables that changed
        later. Ask in the main process and send the slot to such a worker, as `EpochLoader` does.

        Raises:
            ValueError: As `keepfed.limits.get_rank`.
        """
        return cls(*get_rank()).in_worker()

    def in_worker(self) -> WorkerSlot:
        """Return this rank with the worker of this process, or unchanged outside of workers."""
        worker = get_worker_info()
        if worker is None:
            return self
        return replace(self, worker=worker.id, num_workers=worker.num_workers)


def epoch_rng(seed: int, epoch: int, slot: WorkerSlot | None = None) -> np.random.Generator:
    """Return the random generator of one epoch, in the same state at every call.

    Without a slot, all workers and ranks get the same numbers: they must agree on the order of
    shards before they split them. With a slot, each worker gets its own numbers, because otherwise
    the batches of two ranks would be drawn alike.
    """
    # counted from 1, because NumPy ignores zeros at the end of a seed
    own = [slot.rank + 1, slot.worker + 1] if slot else []
    return np.random.default_rng([seed, epoch, *own])


def block_order(
    n_samples: int, block: int, together: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return blocks of neighboring samples in random order, and the ends of groups of blocks.

    The indices are int64 (n_samples,), ascending within a block. An end is the position among them
    after `together` blocks. The last group has none.
    """
    starts = rng.permutation(-(-n_samples // block)) * block
    order = (starts[:, None] + np.arange(block)).ravel()
    ends = np.minimum(block, n_samples - starts).cumsum()
    return order[order < n_samples], ends[together - 1 : -1 : together]


class Shared(NamedTuple):
    """Numbers that all processes share, each a tensor with one int64."""

    start: torch.Tensor  # samples that the next loop skips, because they were taken before
    begun: torch.Tensor  # epoch that was begun last
    served: torch.Tensor  # epoch that was served to its end
    warned: torch.Tensor  # 1 if the warning about a repeated epoch was given


class EpochLoader:
    """Base of everything that serves samples in epochs. The module describes its contract."""

    def __init__(self, made_by: Mapping[str, Any], slot: WorkerSlot | None, *, changes: bool):
        """Begin with epoch 0.

        Args:
            made_by: Arguments that determine the order, stored in every state.
            slot: Rank that this loader serves. None for the rank of the process.
            changes: Whether epochs have different orders.
        """
        self.made_by, self.slot = dict(made_by), slot
        self.epoch = SharedEpoch()
        self.taken = 0  # samples of this epoch that the loops of all ranks have taken
        self._changes = changes
        self._sent_from: WorkerSlot | None = None
        self._loop: object = None  # identity of the loop whose batches count
        numbers = torch.tensor([0, _NONE, _NONE, 0], device="cpu")
        self._shared = Shared(*numbers.share_memory_())  # type: ignore[no-untyped-call]
        self._loops: WeakSet[Any] = WeakSet()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next loop serves, for persistent workers too."""
        self._move_to(epoch, self._start if epoch == self.epoch.value else 0)

    def follow(self, loader: Iterable[T]) -> Loop[T]:
        """Yield the rest of the epoch from `loader`, count it, and advance to the next epoch.

        `loader` is any iterable of this epoch, such as `CudaPrefetcher(DataLoader(...))`.
        """
        loop = self._followed(loader)
        self._loops.add(loop)
        return loop

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loop. The current batch counts as taken.

        Save this state with the model between two steps, never during a step.
        """
        epoch, made_by = self.epoch.value, {**self.made_by}
        uncounted = int(self._shared.begun) == epoch and self.taken == self._start
        return {"epoch": epoch, "taken": self.taken, "uncounted": uncounted, "made_by": made_by}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next loop continue where `state_dict` was called.

        Raises:
            ValueError: If the state belongs to another order.
        """
        match state:
            case {"epoch": int(epoch), "taken": int(taken), "made_by": _} if min(epoch, taken) >= 0:
                following = f"set_epoch({epoch + 1})"
            case _:
                raise ValueError(f"{state} is no state of `state_dict`. Use an older checkpoint.")
        if state["made_by"] != self.made_by:
            raise ValueError(
                f"The state belongs to the order of {state['made_by']}, but this order has "
                f"{self.made_by}, so samples would be lost or repeated. Use the same arguments, or "
                f"begin the next epoch: {following}."
            )
        self._move_to(epoch, taken)
        if state.get("uncounted"):
            warnings.warn(
                f"The state was saved during epoch {epoch}, but has no position in it. "
                "The next loop serves these samples again. To begin the next epoch instead, call "
                f"{following}.",
                stacklevel=2,
            )

    def close(self) -> None:
        """End loops that are still open, and close files. The next loop opens them again."""
        for loop in list(self._loops):
            loop.close()

    def __getstate__(self) -> dict[str, Any]:
        """Send the rank along, because a worker that is not forked has no process group."""
        return {**vars(self), "_sent_from": self.here(), "_loop": None, "_loops": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _loops=WeakSet())

    def here(self) -> WorkerSlot:
        """Return the rank and the worker that this process serves."""
        if self.slot is not None:
            return self.slot.in_worker()
        if self._sent_from is None or get_worker_info() is None or has_group():
            return WorkerSlot.here()
        return self._sent_from.in_worker()

    @property
    def _start(self) -> int:
        return int(self._shared.start)

    def _step_samples(self) -> tuple[int, int]:
        """Return the samples of a step and of an epoch of all ranks, or 0 without a position."""
        return 0, 0

    def _move_to(self, epoch: int, taken: int = 0) -> None:
        """Let the next loop begin at this position. An open loop no longer counts."""
        self.epoch.value, self.taken, self._loop = epoch, taken, None
        for number, value in zip(self._shared[:3], (taken, _NONE, _NONE), strict=True):
            number.fill_(value)

    def _follow_itself(self, batches: Iterable[T]) -> Iterator[T]:
        """Return a loop that follows itself, unless a worker or `follow` iterates it."""
        # a loop that an exception left behind is not running, so it does not count
        if get_worker_info() or any(loop.gi_running for loop in self._loops):
            return iter(batches)
        return self.follow(batches)

    def _followed(self, loader: Iterable[T]) -> Loop[T]:
        if self._loop is not None:  # a loop was left and is not closed yet
            self._shared.start.fill_(0)
        epoch, self.taken = self.epoch.value, self._start
        step, end = self._step_samples()
        self._shared.served.fill_(_NONE)
        loop = self._loop = object()
        try:
            for batch in loader:
                if self._loop is loop:
                    self.taken = min(self.taken + step, end)
                yield batch
            if self._loop is loop:
                self._move_to(epoch + 1)
        finally:
            if self._loop is loop:
                self._shared.start.fill_(0)
                self._loop = None

    def _noted(self, make: Callable[[], Iterable[T]]) -> Iterator[T]:
        """Yield the items of an epoch, note its beginning and end, and warn if it is repeated."""
        shared, epoch, slot = self._shared, self.epoch.value, self.here()
        repeats = self._changes and shared.served == epoch and not shared.warned
        if repeats and slot.rank == slot.worker == 0:
            shared.warned.fill_(1)
            warnings.warn(
                f"{type(self).__name__} serves epoch {epoch} again, in the same order. Call "
                "set_epoch before each loop, or loop over its follow(loader).",
                stacklevel=2,
            )
        shared.begun.fill_(epoch)  # every worker writes the same number
        yield from make()
        if slot.worker == 0:
            shared.served.fill_(epoch)
