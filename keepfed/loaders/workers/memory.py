"""How much memory a loader takes: batches on their way, workers, and what a node has for them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch

from keepfed.device.batches import leaves
from keepfed.limits import SHM, known, memory, shm_size
from keepfed.words import plural, size

DEFAULT_PREFETCH = 2  # batches of a worker: what DataLoader takes for prefetch_factor=None


def nbytes(batch: Any) -> int:
    """Return the bytes that a batch takes on its way from a worker.

    It looks into mappings, lists, tuples and dataclasses. A dense tensor counts with the whole
    storage behind it, since a view takes all of that along; two tensors on one storage count once.
    A NumPy array counts with what it shows, as pickle sends it. Text counts with its bytes, other
    things do not count.
    """
    storages: dict[int, int] = {}
    others = 0
    for leaf in leaves(batch):
        if isinstance(leaf, torch.Tensor):
            storage = leaf.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(leaf, np.ndarray | np.generic):
            others += leaf.nbytes
        elif isinstance(leaf, str):
            others += len(leaf.encode("utf-8", "surrogatepass"))
        elif isinstance(leaf, bytes | bytearray):
            others += len(leaf)
    return sum(storages.values()) + others


@dataclass(frozen=True)
class ShmBudget:
    """The memory of a node: batches, staged data and programs against /dev/shm and the limit.

    All of /dev/shm is memory, so staged data count twice: they must fit into its size, and beside
    the programs into the memory of the machine or of the container.
    """

    batch_bytes: int  # one batch, as `nbytes` tells it
    num_workers: int  # of each loader
    memory_bytes: int  # memory of the machine, or the limit of the container
    prefetch_factor: int = DEFAULT_PREFETCH  # batches that each worker keeps ready
    shm_bytes: int | None = None  # size of /dev/shm; None: there is none
    staged_bytes: int = 0  # in /dev/shm: once per node, however many ranks
    programs_bytes: int = 0  # what training and workers take for themselves
    loaders: int = 1  # as many as the node has ranks, one for each GPU

    @property
    def travelling_bytes(self) -> int:
        """The bytes of all batches on their way through /dev/shm; without workers there is none.

        Each worker keeps some batches ready, and the loop holds one more.
        """
        batches = self.num_workers * self.prefetch_factor + 1
        return self.loaders * batches * self.batch_bytes if self.num_workers else 0

    @property
    def room_bytes(self) -> int:
        """The bytes that the batches leave in /dev/shm and, beside the programs, in memory."""
        sizes = [self.memory_bytes - self.programs_bytes]
        if self.shm_bytes is not None:
            sizes.append(self.shm_bytes)
        return min(sizes) - self.travelling_bytes

    @property
    def stageable_bytes(self) -> int:
        """The most that may be staged."""
        return max(0, self.room_bytes)

    @property
    def fits(self) -> bool:
        """Whether what is staged leaves room for the batches, and for the programs."""
        return self.staged_bytes <= self.room_bytes

    def __repr__(self) -> str:
        """Say it in words, on two lines: a page breaks a long one in mid-word."""
        shm = "no /dev/shm" if self.shm_bytes is None else f"/dev/shm of {size(self.shm_bytes)}"
        return (
            f"{plural(self.loaders, 'loader')} with {size(self.travelling_bytes)} of batches, "
            f"{size(self.staged_bytes)} staged and programs of {size(self.programs_bytes)}:\n"
            f"{'fits' if self.fits else 'does not fit'} into {shm} and memory of "
            f"{size(self.memory_bytes)}, where {size(self.stageable_bytes)} may be staged."
        )


def shm_budget(batch: Any, num_workers: int, **others: int) -> ShmBudget:
    """Return the budget of this machine; `others` are fields of `ShmBudget`."""
    machine: dict[str, Any] = {"memory_bytes": memory(), "shm_bytes": known(shm_size)}
    return ShmBudget(nbytes(batch), num_workers, **{**machine, **others})


def unique_mb(pid: int) -> float:
    """Return the MB of a process that no other process shares with it (USS); 0.0 if it is gone.

    Its resident memory (RSS) would count all that a forked worker shares with its parent, and
    so hides how that is copied bit by bit.
    """
    try:
        return float(psutil.Process(pid).memory_full_info().uss) / 1e6
    except (psutil.NoSuchProcess, ProcessLookupError):
        return 0.0


def shm_free() -> int | None:
    """Return the free bytes of /dev/shm, through which batches travel; None where there is none."""
    return known(lambda: shutil.disk_usage(SHM).free)
