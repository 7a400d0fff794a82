"""What the tests of divided streams share."""

import pytest

MORE_WORKERS_THAN_CORES = "ignore:This DataLoader will create:UserWarning"


def set_rank(patch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    """Make this process one rank of several, as torchrun does."""
    patch.setenv("RANK", str(rank))
    patch.setenv("WORLD_SIZE", str(world_size))
