"""Load the events of a stream, and list them."""

from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from course_utils.loading.events import pad_collate


def load(stream: IterableDataset[Any], num_workers: int = 0, **options: Any) -> DataLoader[Any]:
    """Return a loader of events with a timeout, so that a hanging worker fails the test."""
    if num_workers:
        options["timeout"] = 120
    return DataLoader(
        stream, batch_size=32, num_workers=num_workers, collate_fn=pad_collate, **options
    )


def event_ids(loader: DataLoader[Any]) -> list[int]:
    return torch.cat([batch["event_id"] for batch in loader]).tolist()
