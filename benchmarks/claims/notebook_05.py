"""Count or measure the claims of notebook 05."""

import time
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import slow_storage
from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import Sample, pad_collate, read_labels
from course_utils.loading.quality import mixing
from course_utils.teaching.notebook import data_path
from keepfed.loaders.prefetch import ThreadPrefetcher
from keepfed.loaders.stream import WorkerSlot, batched, buffer_shuffle, split


class Numbers(IterableDataset[int]):
    """The numbers from 0, divided among the workers or not."""

    def __init__(self, count: int, *, shared: bool):
        self.count, self.shared = count, shared

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        numbers = range(self.count)
        return iter(split(numbers, WorkerSlot.here()) if self.shared else numbers)


def epochs_in_one() -> int:
    """Count how often four workers serve each number of a stream that is not divided."""
    return _served(Numbers(960, shared=False), batch_size=64) // 960


def warnings_about_single_events() -> int:
    """Count torch's warnings while two workers serve every event twice."""
    loader = DataLoader(Numbers(1000, shared=False), batch_size=32, num_workers=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(loader) == 32
        assert sum(len(batch) for batch in loader) == 2000
    return sum("Length of IterableDataset" in str(one.message) for one in caught)


def numbers_served() -> int:
    """Count the numbers served of 100 when each of four workers drops its last batch."""
    return _served(Numbers(100, shared=True), batch_size=16, drop_last=True)


def _served(numbers: Numbers, batch_size: int, *, drop_last: bool = False) -> int:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create 4 worker")
        loader = DataLoader(numbers, batch_size, drop_last=drop_last, num_workers=4)
        return sum(len(batch) for batch in loader)


def worth_of_a_batch_from_one_place() -> float:
    """Return how many independent events scatter as much as 32 consecutive ones."""
    energy = _energy()
    return mixing(batched(range(len(energy)), 32), energy).worth


def scatter_with_a_buffer_over_none() -> float:
    """Return the scatter with a buffer of a tenth of the sorted file, relative to none."""
    energy, rng = _energy(), np.random.default_rng(0)
    n = len(energy)
    none, buffer = (
        mixing(batched(order, 32), energy).std
        for order in (range(n), buffer_shuffle(range(n), n // 10, rng))
    )
    return buffer / none


def share_that_moves_farther() -> float:
    """Return the share of events that a buffer moves by more than its own length."""
    n, size = 2000, 200
    moves = [
        np.argsort([*buffer_shuffle(range(n), size, np.random.default_rng(seed))]) - np.arange(n)
        for seed in range(10)
    ]
    return float(np.mean(np.abs(moves) > size))


def scatter_after_an_offline_shuffle() -> float:
    """Return the scatter of batches read in order from a shuffled file; 1 is ideal."""
    energy = _energy()
    ratios = []
    for seed in range(10):
        written = energy[np.random.default_rng(seed).permutation(len(energy))]
        ratios.append(mixing(batched(range(len(energy)), 32), written).ratio)
    return float(np.mean(ratios))


def gain_by_a_thread() -> float:
    """Measure the time of steps without a prefetching thread, relative to steps with it."""
    folder = data_path("events", "S")

    def loader() -> DataLoader[Sample]:
        storage = slow_storage(folder, "busy Lustre", cache_mb=0)
        stream = EventShards(folder, shards=250, interleave=4, chunk=8, buffer=1, fs=storage)
        return DataLoader(stream, batch_size=32, collate_fn=pad_collate)

    return _seconds(loader()) / _seconds(ThreadPrefetcher(loader()))


def _seconds(batches: Iterable[object], steps: int = 20) -> float:
    gpu = get_accelerator(step_ms=30, emulate=True)
    begin = time.perf_counter()
    for batch in islice(batches, steps):
        gpu.step(gpu.upload(batch)).item()
    return time.perf_counter() - begin


def _energy() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return read_labels(data_path("events", "S")).energy
