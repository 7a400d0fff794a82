"""Loaders of the course, from one file per sample to one `index_select` per batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.stories.peers import formats
from course_utils.stories.peers.peer import Epoch, Peers, peer, places, same, shuffled
from keepfed.loaders.workers import LazyFile

COURSE: Peers = {}
LIMIT = "limit: all in memory"
BATCHED = "np.memmap, batches at once"


class Npz(Dataset[torch.Tensor]):
    """One file per sample."""

    def __init__(self, folder: Path):
        self.paths = np.array(sorted(map(str, folder.iterdir())))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with np.load(self.paths[index]) as arrays:
            return torch.from_numpy(arrays["pulses"])


class Mapped(Dataset[Any]):
    """A memory-mapped array, read one sample at a time."""

    file_name = "pulses.npy"

    def __init__(self, folder: Path):
        self._lazy: LazyFile[Any] = LazyFile(np.load, str(folder / self.file_name), mmap_mode="r")

    def __len__(self) -> int:
        return len(self._lazy.file)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self._lazy.file[index].copy())


class MappedBatches(Mapped):
    """A memory-mapped array, read one batch at a time."""

    def __getitems__(self, indices: Sequence[int]) -> torch.Tensor:
        return torch.from_numpy(self._lazy.file[indices])


class Hdf5Batches(Dataset[Any]):
    """An HDF5 dataset, read one batch at a time with sorted indices."""

    def __init__(self, folder: Path):
        self._lazy: LazyFile[Any] = LazyFile(h5py.File, str(folder / "pulses.h5"), "r")

    def __len__(self) -> int:
        return len(self._lazy.file["pulses"])

    def __getitems__(self, indices: Sequence[int]) -> torch.Tensor:
        """Read a batch with one call."""
        return torch.from_numpy(self._lazy.file["pulses"][np.sort(indices)])


@peer(COURSE, "a .npz for each", formats.npz, one_by_one=True)
def npz(folder: Path, batch_size: int) -> Epoch:
    """Open one file per sample."""
    return shuffled(Npz(folder), batch_size)


@peer(COURSE, "np.memmap, one by one", formats.npy)
def mapped(folder: Path, batch_size: int) -> Epoch:
    """Copy each sample, and stack the copies."""
    return shuffled(Mapped(folder), batch_size)


@peer(COURSE, "HDF5, sorted index", formats.hdf5)
def hdf5_index(folder: Path, batch_size: int) -> Epoch:
    """Read each batch with one HDF5 selection."""
    return shuffled(Hdf5Batches(folder), batch_size, collate_fn=same)


@peer(COURSE, BATCHED, formats.npy)
def memmap_batches(folder: Path, batch_size: int) -> Epoch:
    """Copy each batch with NumPy indexing."""
    return shuffled(MappedBatches(folder), batch_size, collate_fn=same)


@peer(COURSE, LIMIT, formats.npy)
def limit(folder: Path, batch_size: int) -> Epoch:
    """Copy from memory into preallocated memory, as an upper limit of the speed."""
    pulses = torch.from_numpy(np.load(folder / "pulses.npy"))
    ring = [torch.empty(batch_size, *pulses.shape[1:]) for _ in range(2)]

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for count, chosen in enumerate(torch.split(torch.randperm(len(pulses)), batch_size)):
            out = ring[count % 2][: len(chosen)]
            yield places(torch.index_select(pulses, 0, chosen, out=out))

    return epoch
