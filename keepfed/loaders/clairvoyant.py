"""Read a shuffled dataset in fewer and larger requests, because the order is known in advance.

    loader = ClairvoyantLoader(events, 64, window=16, collate_fn=pad_collate)
    for epoch in range(3):
        for batch in loader: ...  # the same batches as without a window

The seed determines the order of an epoch, so the loader can compute which samples the next batches
need. It reads the samples of `window` batches together, in the order of the file. The dataset can
then merge the reads of neighbours. The loop gets the shuffled batches, bit for bit. Dryden et al.
call this clairvoyance ("Clairvoyant Prefetching for Distributed Machine Learning I/O", SC 2021,
arXiv:2101.08734), and use it to choose what each node of a cluster caches.

The gain depends on the share of the dataset in the window, not on its size. See `expected_reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, default_collate

from keepfed.loaders.contract import WorkerSlot
from keepfed.loaders.resume import IndexBatches


class ClairvoyantLoader(IndexBatches, IterableDataset[Any]):
    """Loader that reads the samples of several batches together, and serves them shuffled.

    The dataset should have a method `__getitems__`, which receives ascending indices and merges the
    reads of neighbours. Otherwise the samples are read one at a time, in the order of the file. At
    most `window` batches are in memory, and one more while the loop uses it. The first batch of a
    window waits until all of them are read. To read while the loop computes, wrap the loader in
    `ThreadPrefetcher(loader, window)`, which holds a second window, or use workers:
    `DataLoader(loader, batch_size=None, num_workers=2)`. Each worker then has its own window of its
    own batches. An error of a sample is raised before the first batch of its window.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        window: int = 16,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        slot: WorkerSlot | None = None,
    ):
        """Begin with epoch 0. Nothing is read yet.

        Args:
            dataset: A map-style dataset.
            batch_size: Samples in a batch of one rank.
            window: Batches that are read together. It does not change the order.
            collate_fn: Makes a batch of a list of samples.
            shuffle: Whether each epoch has a new order.
            seed: Determines the order, together with the epoch.
            drop_last: Whether incomplete last batches are dropped.
            slot: Rank of these samples. None for the rank of the process.

        Raises:
            ValueError: If a number is too small.
        """
        if window < 1:
            raise ValueError(f"`window` must be at least 1, but is {window}.")
        self.dataset, self.window, self.collate_fn = dataset, window, collate_fn
        order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        super().__init__(len(dataset), batch_size, slot=slot, **order)

    def __iter__(self) -> Iterator[Any]:
        return self._follow_itself(self._read())

    def _read(self) -> Iterator[Any]:
        batches = self.deal()
        while window := list(islice(batches, self.window)):
            wanted = np.sort(np.concatenate(window)).tolist()
            samples = dict(zip(wanted, self._fetch(wanted), strict=True))
            for batch in window:
                yield self.collate_fn([samples.pop(index) for index in batch.tolist()])

    def _fetch(self, indices: list[int]) -> Sequence[Any]:
        if hasattr(self.dataset, "__getitems__"):
            samples: Sequence[Any] = self.dataset.__getitems__(indices)
            return samples
        return [self.dataset[index] for index in indices]


def expected_reads(n_samples: int, wanted: int, per_read: int) -> float:
    """Return the expected number of reads for `wanted` random samples of `n_samples`.

    A read returns a block of `per_read` neighbours, such as a chunk of HDF5, a row group of Parquet
    or a cluster of ROOT. A block is read if at least one of its samples is wanted.

    For a small window, each sample costs a read. A window has an effect if a block contains, on
    average, about one wanted sample or more: `wanted / n_samples * per_read >= 1`.
    """
    missed = (1 - wanted / n_samples) ** per_read  # chance that no sample of a block is wanted
    return n_samples / per_read * (1 - missed)
