"""Load a learner's dataset as training would, without waiting for ever."""

from typing import Any

from torch.utils.data import DataLoader

# for a batch: a worker that hangs, or that an interrupt has ended alone, ends the check
WAIT_S = 60


def loader(dataset: Any, *, num_workers: int = 2, **how: Any) -> DataLoader[Any]:
    """Return a loader of batches that are lists, unless `how` has a collate_fn."""
    how = {"collate_fn": list, "timeout": WAIT_S if num_workers else 0, **how}
    return DataLoader(dataset, num_workers=num_workers, **how)
