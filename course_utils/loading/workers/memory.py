"""How much memory a loader takes: its batches on their way, and its workers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import psutil
import torch

from course_utils.errors import CourseError
from course_utils.hardware.machine import SHM, known

DEFAULT_PREFETCH = 2  # what DataLoader takes for prefetch_factor=None


def nbytes(batch: Any) -> int:
    """Return the bytes that a batch takes on its way from a worker.

    It looks into mappings, lists, tuples and dataclasses. A tensor counts with the whole storage
    behind it, since a view takes all of that along; two tensors on one storage count once. A NumPy
    array counts with what it shows, as pickle sends it. Text counts with its bytes, other things
    do not count.
    """
    storages: dict[int, int] = {}
    others = 0
    for leaf in _leaves(batch):
        if isinstance(leaf, torch.Tensor):
            for tensor in _dense(leaf):
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(leaf, np.ndarray | np.generic):
            others += leaf.nbytes
        elif isinstance(leaf, str):
            others += len(leaf.encode("utf-8", "surrogatepass"))
        elif isinstance(leaf, bytes | bytearray):
            others += len(leaf)
    return sum(storages.values()) + others


def in_flight_bytes(batch: Any, num_workers: int, prefetch_factor: int | None = None) -> int:
    """Return the bytes of all batches that exist at once while one is being used.

    Each worker keeps `prefetch_factor` batches ready (DataLoader's default is 2); the loop holds
    one more. `num_workers=0`: just that one.
    """
    return Budget(nbytes(batch), num_workers, prefetch_factor or DEFAULT_PREFETCH).in_flight_bytes


@dataclass(frozen=True)
class Budget:
    """The memory that batches on their way take."""

    batch_bytes: int
    num_workers: int
    prefetch_factor: int = DEFAULT_PREFETCH
    limit_bytes: int | None = None  # what they may take; None: not asked

    @property
    def batches(self) -> int:
        """How many batches exist at once: those kept ready, and the one in use."""
        return self.num_workers * self.prefetch_factor + 1

    @property
    def in_flight_bytes(self) -> int:
        """The bytes of all of them."""
        return self.batches * self.batch_bytes

    @property
    def sentence(self) -> str:
        """The budget in words."""
        limit = "" if self.limit_bytes is None else f" of the {mb(self.limit_bytes)} there are"
        return (
            f"{self.num_workers} worker{'s' * (self.num_workers != 1)} × {self.prefetch_factor} "
            f"prefetched + 1 in use = {self.batches} batches of {mb(self.batch_bytes)}: "
            f"{mb(self.in_flight_bytes)}{limit}."
        )

    def __repr__(self) -> str:
        """Say it in words."""
        return self.sentence


def affordable_workers(
    batch: Any, limit_bytes: int, prefetch_factor: int | None = None, *, at_most: int = 64
) -> Budget:
    """Return the budget with the most workers whose batches fit into `limit_bytes`.

    Args:
        batch: one batch as the loader makes it.
        limit_bytes: such as a half of `shm_free()`.
        prefetch_factor: as for the DataLoader.
        at_most: workers that would make sense if memory had no end, such as the number of cores.
    """
    size, prefetch = nbytes(batch), prefetch_factor or DEFAULT_PREFETCH
    spare = limit_bytes - size  # one batch is in use
    fitting = spare // (prefetch * size) if size else at_most
    return Budget(size, min(max(fitting, 0), at_most), prefetch, limit_bytes)


def unique_mb(pid: int) -> float:
    """Return the MB of a process that no other process shares with it (USS); 0.0 if it is gone.

    Its resident memory (RSS) would count all that a forked worker shares with its parent, and
    so hides how that is copied bit by bit.

    Raises:
        CourseError: this system does not tell.
    """
    return _memory_mb(pid, "uss")


def share_mb(pid: int) -> float:
    """Return the MB of a process, what it shares with others divided among them (PSS).

    Only Linux divides; elsewhere it is what `unique_mb` returns. The same errors.
    """
    return _memory_mb(pid, "pss")


def shm_free() -> int | None:
    """Return the free bytes of /dev/shm, through which batches travel; None where there is none."""
    return known(lambda: shutil.disk_usage(SHM).free)


def _memory_mb(pid: int, kind: str) -> float:
    try:
        memory = psutil.Process(pid).memory_full_info()
    except (psutil.NoSuchProcess, ProcessLookupError):
        return 0.0
    except psutil.AccessDenied:
        raise CourseError(
            f"This system does not tell the memory of process {pid}; look at it with the monitor "
            "of the system instead."
        ) from None
    return float(getattr(memory, kind, memory.uss)) / 1e6


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    elif is_dataclass(batch) and not isinstance(batch, type):
        batch = [getattr(batch, field.name) for field in fields(batch)]
    if isinstance(batch, list | tuple):
        for part in batch:
            yield from _leaves(part)
    else:
        yield batch


def _dense(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors with a storage that a tensor consists of."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor]


def mb(count: int) -> str:
    """Return bytes as they read well: "12.5 MB", "3,264 MB"."""
    return f"{count / 1e6:,.1f} MB" if count < 100e6 else f"{count / 1e6:,.0f} MB"
