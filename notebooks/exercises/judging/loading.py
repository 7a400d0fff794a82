"""Load a learner's dataset as training would, without waiting for ever."""

from typing import Any

from torch.utils.data import DataLoader

WAIT_S = 60  # for a batch, so that a worker that hangs ends the check


def loader(dataset: Any, *, num_workers: int = 2, **how: Any) -> DataLoader[Any]:
    """Return a loader of batches that are lists, unless `how` has a collate_fn."""
    how = {"collate_fn": list, "timeout": WAIT_S if num_workers else 0, **how}
    return DataLoader(dataset, num_workers=num_workers, **how)
