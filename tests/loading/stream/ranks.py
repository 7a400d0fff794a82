"""Helpers for the tests of divided streams."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from course_utils.loading.events import pad_collate

MORE_WORKERS_THAN_CORES = "ignore:This DataLoader will create:UserWarning"


def set_rank(patch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    """Make this process one of several ranks, as torchrun does."""
    patch.setenv("RANK", str(rank))
    patch.setenv("WORLD_SIZE", str(world_size))


def load(stream: IterableDataset[Any], num_workers: int = 0, **options: Any) -> DataLoader[Any]:
    """Return a loader of events with a timeout, so that a hanging worker fails the test."""
    if num_workers:
        options["timeout"] = 120
    return DataLoader(
        stream, batch_size=32, num_workers=num_workers, collate_fn=pad_collate, **options
    )


def event_ids(loader: DataLoader[Any]) -> list[int]:
    """Return the IDs of all events, in the order in which they are served."""
    return torch.cat([batch["event_id"] for batch in loader]).tolist()


def start_server(start_method: str) -> None:
    """Start the server of workers before ranks are set, so that it cannot inherit one."""
    if start_method == "forkserver":
        from multiprocessing import forkserver  # does not exist on Windows

        forkserver.ensure_running()
