"""Tell which rank of a distributed training this process is. Importing this imports no torch."""

from __future__ import annotations

import os
import sys
from typing import Any


def has_group() -> bool:
    """Return whether this process has joined a process group of torch.distributed."""
    distributed: Any = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def get_rank() -> tuple[int, int]:
    """Return the rank of this process, and the number of ranks.

    They come from torch.distributed, or else from the variables RANK and WORLD_SIZE, which torchrun
    sets before Python starts and workers inherit.

    Raises:
        ValueError: If only one of the two variables is set, or if they are not whole numbers.
    """
    if has_group():
        distributed = sys.modules["torch.distributed"]
        return distributed.get_rank(), distributed.get_world_size()
    rank, world_size = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE"))
    try:
        return (int(rank or ""), int(world_size or "")) if rank or world_size else (0, 1)
    except ValueError as error:
        raise ValueError(
            f"The environment has RANK={rank} and WORLD_SIZE={world_size}. Set both to whole "
            "numbers, as torchrun does, or unset both."
        ) from error
