"""The datasets of the peers: from one event at a time to a batch with one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.loading.workers import LazyFile


class Npz(Dataset[Any]):
    """One file for each event."""

    def __init__(self, folder: Path):
        """List the files."""
        self.paths = np.array(sorted(map(str, (folder / "npz").iterdir())))

    def __len__(self) -> int:
        """Count the files."""
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Read one."""
        with np.load(self.paths[index]) as arrays:
            return torch.from_numpy(arrays["pulses"])


class Mapped(Dataset[Any]):
    """A mapped array, one event at a time."""

    file_name = "pulses.npy"

    def __init__(self, folder: Path):
        """Open it in each process anew."""
        self._lazy: LazyFile[Any] = LazyFile(np.load, str(folder / self.file_name), mmap_mode="r")

    def __len__(self) -> int:
        """Count the events."""
        return len(self._lazy.file)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Copy one."""
        return torch.from_numpy(self._lazy.file[index].copy())


class MappedBatches(Mapped):
    """A mapped array, a batch at a time."""

    def __getitems__(self, indices: Sequence[int]) -> torch.Tensor:
        """Copy a batch with one call."""
        return torch.from_numpy(self._lazy.file[indices])


class MappedLists(Mapped):
    """A mapped array, a batch at a time, given as a list of samples, as DataLoader expects it."""

    def __getitems__(self, indices: Sequence[int]) -> list[torch.Tensor]:
        """Copy a batch with one call."""
        return list(torch.from_numpy(self._lazy.file[indices]))


class MappedRecords(Mapped):
    """The file of the record loader, mapped by numpy, a batch at a time."""

    file_name = "records.npy"

    def __getitems__(self, indices: Sequence[int]) -> torch.Tensor:
        """Copy a batch of records with one call."""
        return torch.from_numpy(self._lazy.file[indices]["pulses"])


class Hdf5Batches(Dataset[Any]):
    """A dataset of HDF5, a batch at a time: its index has to be sorted."""

    def __init__(self, folder: Path):
        """Open it in each process anew."""
        self._lazy: LazyFile[Any] = LazyFile(h5py.File, str(folder / "pulses.h5"), "r")

    def __len__(self) -> int:
        """Count the events."""
        return len(self._lazy.file["pulses"])

    def __getitems__(self, indices: Sequence[int]) -> torch.Tensor:
        """Read a batch with one call."""
        return torch.from_numpy(self._lazy.file["pulses"][np.sort(indices)])
