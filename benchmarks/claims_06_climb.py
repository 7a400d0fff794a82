"""Measure the climb of notebook 06: from an npz for each event to the record loader."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers import one_thread
from course_utils.loading.records import RecordLoader, write_records
from course_utils.loading.workers import LazyFile

RECORDS, FILES = 40_000, 1_000
FIELDS = "pulses", "direction", "energy", "event_id"

Loader = Iterable[dict[str, torch.Tensor]]


class FileEach(Dataset[dict[str, NDArray[Any]]]):
    """The first rung: an npz for each event."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.count = folder, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, NDArray[Any]]:
        with np.load(f"{self.folder}/{index}.npz") as arrays:
            return dict(arrays)


class Batched(Dataset[dict[str, torch.Tensor]]):
    """The third rung: whole batches out of a mapped file."""

    def __init__(self, path: Path, count: int):
        self.count, self.table = count, LazyFile(np.load, path, mmap_mode="r")

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        rows = self.table.file[indices]
        return {name: torch.from_numpy(rows[name]) for name in FIELDS}


def as_it_is(batch: Any) -> Any:
    """Return what needs no collating."""
    return batch


def climb() -> float:
    """Measure how many times faster the record loader is than an npz for each event."""
    with _records() as folder:
        slow = DataLoader(FileEach(folder, FILES), 256, shuffle=True)
        return _ratio(RecordLoader(folder / "records.npy", 1024), slow)


def fields_over_words() -> float:
    """Measure how many times longer numpy gathers records that have fields than plain words."""
    order = np.random.default_rng(0).permutation(RECORDS).reshape(-1, 1000)
    with _records() as folder:
        records = np.load(folder / "records.npy", mmap_mode="r")
        words = np.asarray(records).view(np.int64).reshape(RECORDS, -1)
        times: dict[str, list[float]] = {"fields": [], "words": []}
        for name, rows in [("fields", records), ("words", words)] * 5:
            start = time.perf_counter()
            for batch in order:
                rows[batch]
            times[name].append(time.perf_counter() - start)
        return median(times["fields"]) / median(times["words"])


def two_workers_over_none() -> float:
    """Measure what two workers make of a loader that is fast already."""
    with _records() as folder:
        workers = _whole_batches(folder, num_workers=2, persistent_workers=True)
        return _ratio(workers, _whole_batches(folder))


def _whole_batches(folder: Path, **options: Any) -> DataLoader[dict[str, torch.Tensor]]:
    load = partial(DataLoader, batch_size=1024, shuffle=True, collate_fn=as_it_is)
    return load(Batched(folder / "records.npy", RECORDS), **options)


@contextmanager
def _records() -> Iterator[Path]:
    """Provide a folder with the records, and with the first of them as files; limit torch."""
    rng = np.random.default_rng(0)
    shapes = (RECORDS, 128, 4), (RECORDS, 3), (RECORDS,)
    values = [*(rng.random(shape, np.float32) for shape in shapes), np.arange(RECORDS)]
    fields = dict(zip(FIELDS, values, strict=True))
    with one_thread(), TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_records(folder / "records.npy", fields)
        for event in range(FILES):
            one: dict[str, Any] = {name: values[event] for name, values in fields.items()}
            np.savez(folder / f"{event}.npz", **one)
        yield folder


def _ratio(loader: Loader, other: Loader) -> float:
    """Return how many times as many events/s one loads; they take turns, for other programs do."""
    rates = [(_rate(loader), _rate(other)) for _ in range(3)]
    return max(rate for rate, _ in rates) / max(rate for _, rate in rates)


def _rate(loader: Loader) -> float:
    """Return the events/s of the fastest epoch; each has to serve every event exactly once."""
    seconds = list[float]()
    while len(seconds) < 3 or sum(seconds) < 0.3:
        start = time.perf_counter()
        ids = torch.cat([batch["event_id"].clone() for batch in loader])
        seconds.append(time.perf_counter() - start)
        assert len(ids) == len(ids.unique()) in (FILES, RECORDS)
    return len(ids) / min(seconds)
