"""Code given in exercise 11.3: a loader with an order for each epoch, but without a position."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from keepfed.loaders.stream import batched

BATCH = 8


class OrderedLoader:
    """A loader that knows the batches of every epoch, and loads any list of them."""

    def __init__(self, dataset: Dataset[Any], num_workers: int = 0):
        """Keep a map-style dataset, and the number of workers that load it."""
        self.dataset, self.num_workers = dataset, num_workers

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch, 8 indices each, in their order."""
        order = np.random.default_rng(epoch).permutation(len(self.dataset))  # type: ignore[arg-type]
        return [*batched(order.tolist(), BATCH)]

    def load(self, batches: Sequence[list[int]]) -> DataLoader[Any]:
        """Return a loader of these batches, in this order."""
        workers, timeout = self.num_workers, 120 if self.num_workers else 0
        return DataLoader(self.dataset, batch_sampler=batches, num_workers=workers, timeout=timeout)
