"""Compute how much memory the batches of a loader need, and whether a node has enough."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from keepfed.batches import nbytes
from keepfed.formatting import plural, size
from keepfed.limits import SHM, known, memory, shm_size

DEFAULT_PREFETCH = 2  # batches per worker; DataLoader's value for prefetch_factor=None


@dataclass(frozen=True)
class ShmBudget:
    """Memory budget of a node, for batches, staged data and programs.

    /dev/shm is memory, so staged data must fit into it and, with the programs, into all memory.
    """

    batch_bytes: int  # one batch
    num_workers: int  # workers of each loader
    memory_bytes: int  # memory of the machine, or the limit of the container
    prefetch_factor: int = DEFAULT_PREFETCH  # batches that each worker prefetches
    shm_bytes: int | None = None  # size of /dev/shm, None if it does not exist
    staged_bytes: int = 0  # data in /dev/shm, counted once per node
    programs_bytes: int = 0  # memory of the training and its workers
    loaders: int = 1  # one for each rank, and so for each GPU, of the node

    @property
    def traveling_bytes(self) -> int:
        """The bytes of all batches in flight through /dev/shm, or 0 without workers.

        Each worker prefetches `prefetch_factor` batches, and the loop holds one more.
        """
        batches = self.num_workers * self.prefetch_factor + 1
        return self.loaders * batches * self.batch_bytes if self.num_workers else 0

    @property
    def room_bytes(self) -> int:
        """The bytes that may be staged: what batches and programs leave, negative if too little."""
        memory_bytes = self.memory_bytes - self.programs_bytes
        shm_bytes = memory_bytes if self.shm_bytes is None else self.shm_bytes
        return min(memory_bytes, shm_bytes) - self.traveling_bytes

    @property
    def fits(self) -> bool:
        """Whether the staged data leave enough space for batches and programs."""
        return self.staged_bytes <= self.room_bytes

    def __repr__(self) -> str:
        """Return the budget as text on two lines, because pages break long lines within words."""
        shm = "no /dev/shm" if self.shm_bytes is None else f"/dev/shm of {size(self.shm_bytes)}"
        return (
            f"{plural(self.loaders, 'loader')} with {size(self.traveling_bytes)} of batches, "
            f"{size(self.staged_bytes)} staged and programs of {size(self.programs_bytes)}:\n"
            f"{'fits' if self.fits else 'does not fit'} into {shm} and memory of "
            f"{size(self.memory_bytes)}, where {size(max(0, self.room_bytes))} may be staged."
        )


def shm_budget(batch: Any, num_workers: int, **others: int) -> ShmBudget:
    """Return the budget of this machine. `others` are fields of `ShmBudget`."""
    machine: dict[str, Any] = {"memory_bytes": memory(), "shm_bytes": known(shm_size)}
    return ShmBudget(nbytes(batch, whole=True), num_workers, **{**machine, **others})


def shm_free() -> int | None:
    """Return the free bytes of /dev/shm, or None if it does not exist."""
    return known(lambda: shutil.disk_usage(SHM).free)
