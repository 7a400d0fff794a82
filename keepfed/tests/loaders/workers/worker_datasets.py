"""Datasets for the tests of workers, in a module so that every start method can import them."""

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from keepfed.loaders.workers import SharedEpoch, worker_init, worker_rng


def first(samples: list[Any]) -> Any:
    return samples[0]


class Draws(Dataset[int]):
    """Dataset that draws one number per sample; in a worker always from the same generator."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        rng = worker_rng()
        assert get_worker_info() is None or worker_rng() is rng
        return int(rng.integers(2**60))


class Pools(Dataset[Any]):
    """Dataset that reports the threads of every pool, including one loaded here."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        new = "scipy.linalg" not in sys.modules
        import pyarrow
        import scipy.linalg  # noqa: F401  has a pool of its own
        import threadpoolctl

        pools = {pool["filepath"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
        return {"pools": {**pools, "arrow": pyarrow.cpu_count()}, "new": new}


class Epochs(IterableDataset[int]):
    def __init__(self) -> None:
        self.epoch = SharedEpoch()

    def __iter__(self) -> Iterator[int]:
        yield self.epoch.value


def crash(worker_id: int) -> None:
    """Prepare the worker as usual, then read from address 0."""
    worker_init(worker_id)
    ctypes.string_at(0)
