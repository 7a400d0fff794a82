"""How much of /dev/shm is left for data, once the batches of all workers on a node have theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course_utils.hardware.machine import known, memory, shm_size
from course_utils.loading.workers.memory import DEFAULT_PREFETCH, Budget, nbytes


@dataclass(frozen=True)
class ShmBudget:
    """The memory of a node: batches, staged data and programs against /dev/shm and the limit.

    All of /dev/shm is memory, so staged data count twice: they must fit into its size, and beside
    the programs into the memory of the machine or of the container.

    Attributes:
        batches: those of one loader.
        loaders: as many as the node has ranks, one for each GPU.
        staged_bytes: data in /dev/shm, or a cache of samples; once per node, however many ranks.
        programs_bytes: what training and workers take for themselves.
        shm_bytes: size of /dev/shm; None: there is none.
        memory_bytes: memory of the machine, or the limit of the container.
    """

    batches: Budget
    memory_bytes: int
    shm_bytes: int | None = None
    staged_bytes: int = 0
    programs_bytes: int = 0
    loaders: int = 1

    @property
    def travelling_bytes(self) -> int:
        """The bytes of all batches on their way through /dev/shm; without workers there is none."""
        return self.loaders * self.batches.in_flight_bytes if self.batches.num_workers else 0

    @property
    def stageable_bytes(self) -> int:
        """The most that may be staged."""
        rooms = [self.memory_bytes - self.programs_bytes]
        if self.shm_bytes is not None:
            rooms.append(self.shm_bytes)
        return max(0, min(rooms) - self.travelling_bytes)

    @property
    def fits(self) -> bool:
        """Whether what is staged leaves room for the batches, and for the programs."""
        needed = self.travelling_bytes + self.staged_bytes
        in_shm = self.shm_bytes is None or needed <= self.shm_bytes
        return in_shm and needed + self.programs_bytes <= self.memory_bytes

    @property
    def sentence(self) -> str:
        """The budget in words."""
        shm = "no /dev/shm" if self.shm_bytes is None else f"/dev/shm of {_gb(self.shm_bytes)}"
        return (
            f"{self.loaders} loader{'s' * (self.loaders != 1)} with {_gb(self.travelling_bytes)} "
            f"of batches, {_gb(self.staged_bytes)} staged and programs of "
            f"{_gb(self.programs_bytes)}: {'fits' if self.fits else 'does not fit'} into {shm} and "
            f"memory of {_gb(self.memory_bytes)}, where {_gb(self.stageable_bytes)} may be staged."
        )

    def __repr__(self) -> str:
        """Say it in words."""
        return self.sentence


def shm_budget(
    batch: Any,
    num_workers: int,
    prefetch_factor: int | None = None,
    *,
    staged_bytes: int = 0,
    programs_bytes: int = 0,
    loaders: int = 1,
) -> ShmBudget:
    """Return the budget of this machine for loaders like this one.

    Args:
        batch: one batch as the loader makes it.
        num_workers: of each loader.
        prefetch_factor: as for the DataLoader.
        staged_bytes: what is or shall be in /dev/shm besides.
        programs_bytes: what training and workers take for themselves.
        loaders: how many there are on this node.
    """
    return ShmBudget(
        Budget(nbytes(batch), num_workers, prefetch_factor or DEFAULT_PREFETCH),
        memory_bytes=memory(),
        shm_bytes=known(shm_size),
        staged_bytes=staged_bytes,
        programs_bytes=programs_bytes,
        loaders=loaders,
    )


def _gb(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
