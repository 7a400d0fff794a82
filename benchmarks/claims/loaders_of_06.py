"""Measure the speed-up of notebook 06, from one npz per event to one gather per field."""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from course_utils.stories.peers.measure import threads
from keepfed.loaders.workers import LazyFile

RECORDS, FILES = 40_000, 1_000
FIELDS = "pulses", "direction", "energy", "event_id"

Loader = Iterable[dict[str, torch.Tensor]]


class FileEach(Dataset[dict[str, NDArray[Any]]]):
    """First version: one npz per event."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.count = folder, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, NDArray[Any]]:
        with np.load(f"{self.folder}/{index}.npz") as arrays:
            return dict(arrays)


class Batched(Dataset[dict[str, torch.Tensor]]):
    """Third version: whole batches from one mapped file per field."""

    def __init__(self, folder: Path, count: int):
        self.count = count
        self.files = {
            name: LazyFile(np.load, folder / f"{name}.npy", mmap_mode="r") for name in FIELDS
        }

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(lazy.file[indices]) for name, lazy in self.files.items()}


class Columns:
    """Last version: one mapped file per field, with gathers by torch."""

    def __init__(self, folder: Path):
        files = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in FIELDS}
        self.columns = {name: torch.from_numpy(file) for name, file in files.items()}

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for rows in torch.split(torch.randperm(RECORDS), 1024):
            yield {name: torch.index_select(c, 0, rows) for name, c in self.columns.items()}


class Records(Columns):
    """The same gathers, from one mapped file with all fields of an event together."""

    def __init__(self, folder: Path):
        table = np.load(folder / "records.npy", mmap_mode="c")
        self.columns = {name: torch.from_numpy(table[name]) for name in FIELDS}


def identity_collate(batch: Any) -> Any:
    """Return the batch without collating."""
    return batch


def gathers_over_files() -> float:
    """Measure the speed of gathers from mapped files, relative to one npz per event."""
    with _files() as folder:
        slow = DataLoader(FileEach(folder, FILES), 256, shuffle=True)
        return _ratio(Columns(folder), slow)


def records_over_columns() -> float:
    """Measure the speed of records relative to columns, in contiguous batches, warm."""
    with _files() as folder:
        return _ratio(Records(folder), Columns(folder))


def two_threads_over_one_when_busy() -> float:
    """Measure the speed of gathers with a second thread while two other programs compute.

    This runs in a new process. If more threads than cores have run before, as after other claims,
    the two threads spin less while they wait for each other, and leave the cores to others.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(_two_threads_over_one).result()


def _two_threads_over_one() -> float:
    with _files() as folder:
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        try:
            rates: dict[int, list[float]] = {1: [], 2: []}
            for count in [1, 2] * 9:
                torch.set_num_threads(count)
                rates[count].append(_epoch_rate(Columns(folder)))
        finally:
            for other in others:
                other.kill()
                other.wait()
        return median(rates[2]) / median(rates[1])


def two_workers_over_none() -> float:
    """Measure the speed of a fast loader with two workers, relative to none."""
    with _files() as folder:
        workers = _whole_batches(folder, num_workers=2, persistent_workers=True)
        return _ratio(workers, _whole_batches(folder))


def _whole_batches(folder: Path, **options: Any) -> DataLoader[dict[str, torch.Tensor]]:
    load = partial(DataLoader, batch_size=1024, shuffle=True, collate_fn=identity_collate)
    return load(Batched(folder, RECORDS), **options)


@contextmanager
def _files() -> Iterator[Path]:
    """Provide a folder with the events in all formats, and limit torch to one thread."""
    rng = np.random.default_rng(0)
    shapes = (RECORDS, 128, 4), (RECORDS, 3), (RECORDS,)
    values: list[NDArray[Any]] = [
        *(rng.random(shape, np.float32) for shape in shapes),
        np.arange(RECORDS),
    ]
    fields = dict(zip(FIELDS, values, strict=True))
    with threads(1), TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        kinds = [(name, array.dtype, array.shape[1:]) for name, array in fields.items()]
        table = np.empty(RECORDS, np.dtype(kinds, align=True))
        for field, array in fields.items():
            table[field] = array
        np.save(folder / "records.npy", table)
        for field, array in fields.items():
            np.save(folder / f"{field}.npy", array)
        for event in range(FILES):
            one: dict[str, Any] = {name: values[event] for name, values in fields.items()}
            np.savez(folder / f"{event}.npz", **one)
        yield folder


def _ratio(loader: Loader, other: Loader) -> float:
    """Return the ratio of two throughputs, measured alternately because of other programs."""
    rates = [(_rate(loader), _rate(other)) for _ in range(3)]
    return max(rate for rate, _ in rates) / max(rate for _, rate in rates)


def _rate(loader: Loader) -> float:
    """Return the events/s of the fastest of several epochs."""
    end, rates = time.perf_counter() + 0.3, list[float]()
    while len(rates) < 3 or time.perf_counter() < end:
        rates.append(_epoch_rate(loader))
    return max(rates)


def _epoch_rate(loader: Loader) -> float:
    """Return the events/s of one epoch in contiguous batches that serve every event once."""
    start, ids = time.perf_counter(), []
    for batch in loader:
        whole = {name: tensor.contiguous() for name, tensor in batch.items()}
        ids.append(whole["event_id"].clone())
    seconds = time.perf_counter() - start
    served = torch.cat(ids)
    assert len(served) == len(set(served.tolist())) in (FILES, RECORDS)
    return len(served) / seconds
