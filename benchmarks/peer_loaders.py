"""Load the same events in many ways. Each peer says the places of the events of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import torch
import webdataset
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peer_datasets import (
    Hdf5Batches,
    Mapped,
    MappedBatches,
    MappedLists,
    MappedRecords,
    Npz,
)
from benchmarks.peer_files import SHAPE
from course_utils.loading.prefetch import ThreadPrefetcher
from course_utils.loading.records import RecordLoader

Epoch = Callable[[int], Iterator[torch.Tensor]]  # from the number of the epoch to its batches
LIMIT = "limit: the set in RAM, index_select(out=)"
RECORDS = "record loader"
CONTIGUOUS = f"{RECORDS}, made contiguous"
THREE_LINES = "three lines: mapped .npy, index_select"
BATCHED = "np.memmap, batches at once"
SAME_FILE = "np.memmap of the record file, batches at once"
LISTED = "np.memmap, __getitems__, default collate"


@dataclass(frozen=True)
class Peer:
    """A way to load events."""

    make: Callable[[Path, int], Epoch]  # from the folder with the files and the batch size
    single: bool  # whether it has only the first events, as it reads them one by one


PEERS: dict[str, Peer] = {}


def peer(name: str, *, single: bool = False) -> Callable[[Callable[[Path, int], Epoch]], Any]:
    """Register a way to load under its name."""

    def register(make: Callable[[Path, int], Epoch]) -> Callable[[Path, int], Epoch]:
        PEERS[name] = Peer(make, single)
        return make

    return register


def places(pulses: torch.Tensor) -> torch.Tensor:
    """Return the places of the events of a batch, in memory of their own."""
    return pulses[:, 0, 0].clone()


def same(samples: Any) -> Any:
    """Leave a batch as it is: the dataset made it."""
    return samples


def shuffled(dataset: Any, batch_size: int, **options: Any) -> Epoch:
    """Load a dataset whose samples, or whose batches, are pulses."""
    loader = DataLoader(dataset, batch_size, shuffle=True, **options)

    def epoch(number: int) -> Iterator[torch.Tensor]:
        return map(places, loader)

    return epoch


@peer("one .npz per event", single=True)
def npz(folder: Path, batch_size: int) -> Epoch:
    return shuffled(Npz(folder), batch_size)


@peer("WebDataset, tar shards, buffer 1,000", single=True)
def tar(folder: Path, batch_size: int) -> Epoch:
    urls = sorted(map(str, folder.glob("*.tar")))

    def epoch(number: int) -> Iterator[torch.Tensor]:
        stream = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=number)
        events = stream.shuffle(1000, seed=number).map(_decoded)
        for batch in events.batched(batch_size, collation_fn=np.stack):
            yield places(torch.from_numpy(batch))

    return epoch


def _decoded(sample: dict[str, Any]) -> Any:
    return np.load(BytesIO(sample["npy"]))


@peer("np.memmap, one by one")
def mapped(folder: Path, batch_size: int) -> Epoch:
    return shuffled(Mapped(folder), batch_size)


@peer("HDF5, sorted index")
def hdf5_index(folder: Path, batch_size: int) -> Epoch:
    return shuffled(Hdf5Batches(folder), batch_size, collate_fn=same)


@peer("TensorDataset in RAM")
def tensor_dataset(folder: Path, batch_size: int) -> Epoch:
    loader = DataLoader(TensorDataset(_in_memory(folder)), batch_size, shuffle=True)

    def epoch(number: int) -> Iterator[torch.Tensor]:
        return (places(pulses) for (pulses,) in loader)

    return epoch


@peer("Parquet, row groups, 4 mixed")
def parquet(folder: Path, batch_size: int) -> Epoch:
    file = pq.ParquetFile(folder / "pulses.parquet")

    def read(group: int) -> torch.Tensor:
        column = file.read_row_group(group, use_threads=False)["pulses"].combine_chunks()
        return torch.from_numpy(column.flatten().to_numpy().reshape(-1, *SHAPE).copy())

    return _mixed(read, file.num_row_groups, batch_size)


@peer("HDF5, blocks of 256, 16 mixed")
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


@peer(SAME_FILE)
def memmap_records(folder: Path, batch_size: int) -> Epoch:
    return shuffled(MappedRecords(folder), batch_size, collate_fn=same)


@peer(LISTED)
def memmap_lists(folder: Path, batch_size: int) -> Epoch:
    return shuffled(MappedLists(folder), batch_size)


@peer(f"{BATCHED}, 2 workers")
def memmap_workers(folder: Path, batch_size: int) -> Epoch:
    return shuffled(MappedBatches(folder), batch_size, collate_fn=same, num_workers=2)


@peer("tensordict, memory-mapped")
def tensordict(folder: Path, batch_size: int) -> Epoch:
    from tensordict import TensorDict

    mapped = TensorDict({"pulses": _in_memory(folder)}, batch_size=[len(Mapped(folder))])
    dataset: Any = mapped.memmap(folder / "tensordict")
    loader = DataLoader(dataset, batch_size, shuffle=True, collate_fn=same)

    def epoch(number: int) -> Iterator[torch.Tensor]:
        return (places(batch["pulses"]) for batch in loader)

    return epoch


@peer(BATCHED)
def memmap_batches(folder: Path, batch_size: int) -> Epoch:
    return shuffled(MappedBatches(folder), batch_size, collate_fn=same)


@peer(THREE_LINES)
def three_lines(folder: Path, batch_size: int) -> Epoch:
    pulses = torch.from_numpy(np.load(folder / "pulses.npy", mmap_mode="c"))

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for chosen in torch.split(torch.randperm(len(pulses)), batch_size):
            yield places(torch.index_select(pulses, 0, chosen))

    return epoch


@peer(CONTIGUOUS)
def records_contiguous(folder: Path, batch_size: int) -> Epoch:
    loader = RecordLoader(folder / "records.npy", batch_size)

    def epoch(number: int) -> Iterator[torch.Tensor]:
        loader.set_epoch(number)
        return (places(batch["pulses"].contiguous()) for batch in loader)

    return epoch


@peer(f"{RECORDS}, thread ahead")
def records_ahead(folder: Path, batch_size: int) -> Epoch:
    return _records(folder, batch_size, ahead=1)


@peer(f"{RECORDS}, sorted")
def records_sorted(folder: Path, batch_size: int) -> Epoch:
    return _records(folder, batch_size, sort=True)


@peer(RECORDS)
def records(folder: Path, batch_size: int) -> Epoch:
    return _records(folder, batch_size)


def _records(folder: Path, batch_size: int, *, ahead: int = 0, sort: bool = False) -> Epoch:
    loader = RecordLoader(folder / "records.npy", batch_size, sort=sort)
    batches = ThreadPrefetcher(loader, ahead) if ahead else loader

    def epoch(number: int) -> Iterator[torch.Tensor]:
        loader.set_epoch(number)
        return (places(batch["pulses"]) for batch in batches)

    return epoch


@peer(LIMIT)
def limit(folder: Path, batch_size: int) -> Epoch:
    pulses = _in_memory(folder)
    ring = [torch.empty(batch_size, *SHAPE) for _ in range(2)]  # as many as the record loader has

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for count, chosen in enumerate(torch.split(torch.randperm(len(pulses)), batch_size)):
            out = ring[count % 2][: len(chosen)]
            yield places(torch.index_select(pulses, 0, chosen, out=out))

    return epoch


def _in_memory(folder: Path) -> torch.Tensor:
    return torch.from_numpy(np.load(folder / "pulses.npy"))
