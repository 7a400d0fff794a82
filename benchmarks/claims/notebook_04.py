"""Count or measure the claims of notebook 04."""

import pickle
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import NpzEvents, pad_collate
from course_utils.teaching.explorer import use_cpu
from course_utils.teaching.notebook import data_path, start_workers
from keepfed.measure.throughput import steady_rate


class Counted(Dataset[int]):
    """Dataset that counts the calls in the current process."""

    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        self.calls += 1
        return index


def calls_seen() -> int:
    """Count the calls that this process sees when workers fetch all samples."""
    dataset = Counted()
    assert len(list(DataLoader(dataset, num_workers=2))) == len(dataset)
    return dataset.calls


def reading_speed_up() -> float:
    """Measure the speed-up of reading with four workers instead of one."""
    folder = data_path("events", "S")
    events = NpzEvents(folder, fs=slow_storage(folder, "busy Lustre", cache_mb=0))
    start_workers()
    order = RandomSampler(events, num_samples=400)
    options: dict[str, Any] = {"sampler": order, "collate_fn": pad_collate}
    one, four = (
        steady_rate(DataLoader(events, 4, num_workers=count, **options), seconds=2)
        for count in (1, 4)
    )
    return four.batches_per_s / one.batches_per_s


class SomeGiants(Dataset[int]):
    """Dataset in which every seventh sample takes ten times as long."""

    def __len__(self) -> int:
        return 70

    def __getitem__(self, index: int) -> int:
        use_cpu(100 if index % 7 == 3 else 10)
        return index


def in_order_over_as_they_come() -> float:
    """Measure the time of an epoch in order over out of order, with a step of 10 ms."""
    start_workers()
    return _epoch_s(in_order=True) / _epoch_s(in_order=False)


def _epoch_s(in_order: bool) -> float:
    batches = iter(DataLoader(SomeGiants(), num_workers=2, in_order=in_order))
    start = time.perf_counter()
    for _ in batches:
        time.sleep(0.01)
    return time.perf_counter() - start


def pickled_over_mapped() -> int:
    """Return the size of a pickled memory map, relative to its bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "data.npy"
        np.save(path, np.zeros(1_000_000, np.float32))
        mapped = np.load(path, mmap_mode="r")
        return len(pickle.dumps(mapped)) // int(mapped.nbytes)


class Noted(Dataset[int]):
    """Dataset that marks loaded samples in shared memory."""

    def __init__(self, count: int):
        self.made = torch.zeros(count, dtype=torch.bool).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: int) -> int:
        self.made[index] = True
        return index


def batches_in_flight() -> int:
    """Count the batches that exist while the loop of two workers uses one of them."""
    dataset = Noted(40)
    batches = iter(DataLoader(dataset, num_workers=2))
    consumed = len(list(islice(batches, 5)))
    asked_for = consumed + 2 * 2
    deadline = time.monotonic() + 30
    while int(dataset.made.sum()) < asked_for and time.monotonic() < deadline:
        time.sleep(0.05)
    made = int(dataset.made.sum())
    list(batches)
    return made - (consumed - 1)


class Drawn(Dataset[int]):
    """Dataset that draws from numpy's global generator, or from one made in `__init__`."""

    def __init__(self, own: bool):
        self.rng = np.random.default_rng() if own else None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if self.rng is None:
            return int(np.random.randint(1_000_000))
        return int(self.rng.integers(1_000_000))


def different_of_np_random() -> int:
    """Count the different numbers of np.random among 8 drawn by two workers."""
    torch.manual_seed(0)
    return len(_drawn(Drawn(own=False)))


def different_of_own_generator() -> int:
    """Count the different numbers of a generator made in `__init__` among 16 of two epochs."""
    dataset = Drawn(own=True)
    return len(_drawn(dataset) | _drawn(dataset))


def _drawn(dataset: Drawn) -> set[int]:
    return {int(value) for value in DataLoader(dataset, num_workers=2)}
