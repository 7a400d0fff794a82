"""Datasets for the tests of workers; importable by them under every start method."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from course_utils.loading.workers import LazyFile, SharedEpoch, worker_init, worker_rng


def first(samples: list[Any]) -> Any:
    return samples[0]


class Draws(Dataset[int]):
    """Draws a number for each sample; in a worker always from the same generator."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        rng = worker_rng()
        assert get_worker_info() is None or worker_rng() is rng
        return int(rng.integers(2**60))


class Pools(Dataset[Any]):
    """Tells the threads of every pool, also of one that is loaded only now."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        new = "scipy.linalg" not in sys.modules
        import pyarrow
        import scipy.linalg  # noqa: F401  has a pool of its own
        import threadpoolctl

        pools = {pool["filepath"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
        return {"pools": {**pools, "arrow": pyarrow.cpu_count()}, "new": new}


class Opened(Dataset[Any]):
    """Tells of files whether they came without an open one, and what stands in them."""

    def __init__(self, files: list[LazyFile[Any]]):
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[bool, Any]:
        lazy = self.files[index]
        came = lazy._file  # that of the parent, after a fork
        return lazy.file is not came, read_any(lazy.file)


def read_any(file: Any) -> list[int]:
    """Read the numbers 0, 1, 2 out of whatever it is."""
    if isinstance(file, np.ndarray):
        return [int(number) for number in file]
    if hasattr(file, "execute"):
        return [row[0] for row in file.execute("select number from numbers order by number")]
    if hasattr(file, "keys"):
        return [int(number) for number in file["numbers"][:]]
    file.seek(0)
    return list(file.read())


class Epochs(IterableDataset[int]):
    """Yields the epoch that the worker sees."""

    def __init__(self) -> None:
        self.epoch = SharedEpoch()

    def __iter__(self) -> Iterator[int]:
        yield self.epoch.value


def crash(worker_id: int) -> None:
    """Prepare the worker as usual, and then read from address 0."""
    worker_init(worker_id)
    ctypes.string_at(0)
