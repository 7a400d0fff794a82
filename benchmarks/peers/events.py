"""Loaders that the three lines of notebook 06 are compared with, including its other loaders.

Libraries that the course does not install are imported inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import torch
from torch.utils.data import TensorDataset

from course_utils.stories.peers import formats
from course_utils.stories.peers.course import LIMIT, Mapped
from course_utils.stories.peers.libraries import ALL, GRAIN
from course_utils.stories.peers.peer import (
    Epoch,
    Package,
    Peers,
    Samples,
    peer,
    places,
    shuffled,
)

FFCV = Package("ffcv", "1.0.2", megabytes=300)
TENSORSTORE = Package("tensorstore", "0.1.86", megabytes=60)
PEERS: Peers = {**ALL}
THREE_LINES = "three lines: mapped .npy, index_select"
TWO_THREADS = f"{THREE_LINES}, 2 threads"
LISTED = "np.memmap, __getitems__, default collate"
SHAPE = 128, 4  # shape of one event


class MappedLists(Mapped):
    """A mapped array, read a batch at a time as a list of samples, which DataLoader expects."""

    def __getitems__(self, indices: Sequence[int]) -> list[torch.Tensor]:
        return list(torch.from_numpy(self._lazy.file[indices]))


@peer(PEERS, "TensorDataset in RAM", formats.npy)
def tensor_dataset(folder: Path, batch_size: int) -> Epoch:
    pulses = torch.from_numpy(np.load(folder / "pulses.npy"))
    return shuffled(TensorDataset(pulses), batch_size, collate_fn=_first_fields)


def _first_fields(samples: Sequence[tuple[torch.Tensor]]) -> torch.Tensor:
    return torch.stack([first for (first,) in samples])


@peer(PEERS, "Parquet, row groups, 4 mixed", formats.parquet)
def parquet(folder: Path, batch_size: int) -> Epoch:
    file = pq.ParquetFile(folder / "pulses.parquet")

    def read(group: int) -> torch.Tensor:
        column = file.read_row_group(group, use_threads=False)["pulses"].combine_chunks()
        return torch.from_numpy(column.flatten().to_numpy().reshape(-1, *SHAPE).copy())

    return _mixed(read, file.num_row_groups, batch_size)


@peer(PEERS, "HDF5, blocks of 256, 16 mixed", formats.hdf5)
def hdf5_blocks(folder: Path, batch_size: int) -> Epoch:
    dataset = h5py.File(folder / "pulses.h5")["pulses"]

    def read(block: int) -> torch.Tensor:
        return torch.from_numpy(dataset[block * 256 : (block + 1) * 256])

    return _mixed(read, -(-len(dataset) // 256), batch_size, together=16)


def _mixed(
    read: Callable[[int], torch.Tensor], n_blocks: int, batch_size: int, together: int = 4
) -> Epoch:
    """Read blocks in random order, and shuffle the events of some of them together."""

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for blocks in torch.split(torch.randperm(n_blocks), together):
            pulses = torch.cat([read(block) for block in blocks.tolist()])
            for chosen in torch.split(torch.randperm(len(pulses)), batch_size):
                yield places(pulses[chosen])

    return epoch


@peer(PEERS, LISTED, formats.npy)
def memmap_lists(folder: Path, batch_size: int) -> Epoch:
    return shuffled(MappedLists(folder), batch_size)


@peer(PEERS, THREE_LINES, formats.npy)
def three_lines(folder: Path, batch_size: int) -> Epoch:
    pulses = torch.from_numpy(np.load(folder / "pulses.npy", mmap_mode="c"))

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for chosen in torch.split(torch.randperm(len(pulses)), batch_size):
            yield places(torch.index_select(pulses, 0, chosen))

    return epoch


def _beton(folder: Path, samples: Samples) -> None:
    from ffcv.fields import NDArrayField
    from ffcv.writer import DatasetWriter

    fields = {"pulses": NDArrayField(np.dtype("float32"), samples.shape[1:])}
    writer = DatasetWriter(str(folder / "pulses.beton"), fields, num_workers=1)
    writer.from_indexed_dataset([(sample,) for sample in samples])


@peer(PEERS, "FFCV", _beton, needs=FFCV, uses="2 threads")
def ffcv(folder: Path, batch_size: int) -> Epoch:
    from ffcv.loader import Loader, OrderOption

    loader = Loader(
        str(folder / "pulses.beton"),
        batch_size=batch_size,
        num_workers=2,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
    )

    def epoch(number: int) -> Iterator[torch.Tensor]:
        return (places(pulses) for (pulses,) in loader)  # FFCV counts epochs itself

    return epoch


def _array_record(folder: Path, samples: Samples) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "pulses.array_record"), "group_size:1")
    for sample in samples:
        writer.write(sample.tobytes())
    writer.close()


def _from_bytes(record: bytes) -> Any:
    return np.frombuffer(record, np.float32)


@peer(
    PEERS,
    "grain, over ArrayRecord",
    _array_record,
    needs=GRAIN,
    one_by_one=True,
    uses="16 threads",
)
def grain_records(folder: Path, batch_size: int) -> Epoch:
    import grain

    source: Any = grain.sources.ArrayRecordDataSource(str(folder / "pulses.array_record"))

    def epoch(number: int) -> Iterator[torch.Tensor]:
        data = grain.MapDataset.source(source).shuffle(seed=number).map(_from_bytes)
        return map(places, data.batch(batch_size).to_iter_dataset())

    return epoch


def _zarr(folder: Path, samples: Samples) -> None:
    import tensorstore

    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder / "pulses.zarr")},
        "metadata": {"chunk_grid": _grid((256, *samples.shape[1:]))},
    }
    store = tensorstore.open(
        spec, create=True, dtype=tensorstore.float32, shape=samples.shape
    ).result()
    store.write(samples).result()


def _grid(shape: Sequence[int]) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(shape)}}


@peer(PEERS, "tensorstore, zarr in memory", _zarr, needs=TENSORSTORE, uses="2 threads")
def tensorstore_index(folder: Path, batch_size: int) -> Epoch:
    import tensorstore

    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder / "pulses.zarr")},
        "context": {"cache_pool": {"total_bytes_limit": 2**30}},
    }
    store = tensorstore.open(spec, read=True).result()

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for chosen in torch.split(torch.randperm(store.shape[0]), batch_size):
            yield places(store[chosen.numpy()].read().result())

    return epoch


PEERS |= {
    f"{name}, 2 threads": replace(PEERS[name], threads=2, uses="2 threads")
    for name in (LIMIT, THREE_LINES)
}
