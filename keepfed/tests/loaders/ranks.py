"""Helpers for the tests of loaders in several ranks."""

import pytest

MORE_WORKERS_THAN_CORES = "ignore:This DataLoader will create:UserWarning"


def set_rank(patch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    """Make this process one of several ranks, as torchrun does."""
    patch.setenv("RANK", str(rank))
    patch.setenv("WORLD_SIZE", str(world_size))


def start_server(start_method: str) -> None:
    """Start the server of workers before ranks are set, so that it cannot inherit one."""
    if start_method == "forkserver":
        from multiprocessing import forkserver  # does not exist on Windows

        forkserver.ensure_running()
