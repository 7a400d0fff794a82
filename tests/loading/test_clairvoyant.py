"""Reading in windows: the same batches in the same order, with fewer requests."""

from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import MemmapEvents, pad_collate
from keepfed.loaders.clairvoyant import ClairvoyantLoader, expected_reads
from keepfed.loaders.resume import ResumableBatches

SIZE = 10  # samples per block


class Blocks(Dataset[int]):
    """Dataset of blocks of SIZE samples that counts its reads, and the samples that it returned."""

    def __init__(self, n_samples: int):
        self.n_samples, self.reads, self.returned = n_samples, 0, 0

    def __len__(self) -> int:
        return self.n_samples

    def __getitems__(self, indices: list[int]) -> list[int]:
        assert indices == sorted(set(indices))
        self.reads += len({index // SIZE for index in indices})
        self.returned += len(indices)
        return indices


class Plain(Dataset[int]):
    """Dataset without `__getitems__` that notes what was read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index


@pytest.mark.parametrize("window", [1, 3, 100])
def test_order_is_that_of_batches_without_a_window(window: int) -> None:
    loader = ClairvoyantLoader(Blocks(95), 8, window=window, seed=3)
    assert [batch.tolist() for batch in loader] == list(ResumableBatches(95, 8, seed=3))


def test_a_window_reads_the_same_events_with_fewer_requests(events_folder: Path) -> None:
    served, requests = [], []
    for window in (1, 8):
        storage = counting_storage(events_folder)
        events = MemmapEvents(events_folder, fs=storage)
        storage.reset_counters()
        loader = ClairvoyantLoader(events, 32, window=window, collate_fn=pad_collate)
        served.append([batch["pulses"] for batch in loader])
        requests.append(storage.counters().requests)
    assert all((one == other).all() for one, other in zip(*served, strict=True))
    assert requests[1] < requests[0] / 2


def test_at_most_a_window_of_batches_is_in_memory() -> None:
    data = Blocks(100)
    loader, served = ClairvoyantLoader(data, 5, window=4), 0
    for batch in loader:
        served += len(batch)
        assert data.returned - served <= 4 * 5
    assert data.returned == served == 100


def test_plain_dataset_is_read_in_the_order_of_the_file() -> None:
    data = Plain()
    batches = [batch.tolist() for batch in ClairvoyantLoader(data, 3, window=2)]
    assert data.read == sorted(chain(*batches[:2])) + sorted(chain(*batches[2:]))


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_resume_serves_the_rest_whatever_the_window(steps: int) -> None:
    whole = [batch.tolist() for batch in ClairvoyantLoader(Blocks(50), 8, seed=1)]
    first = ClairvoyantLoader(Blocks(50), 8, window=4, seed=1)
    before = [batch.tolist() for batch in islice(first, steps)]
    state = {**first.state_dict(), "taken": 8 * steps, "uncounted": False}
    second = ClairvoyantLoader(Blocks(50), 8, window=3, seed=1)
    second.load_state_dict(state)
    assert before + [batch.tolist() for batch in second] == whole


@pytest.mark.slow
def test_workers_have_windows_of_their_own_batches(start_method: str) -> None:
    loader = ClairvoyantLoader(Blocks(95), 8, window=3, seed=3)
    workers = DataLoader(
        loader, batch_size=None, num_workers=2, multiprocessing_context=start_method
    )
    batches = [batch.tolist() for batch in loader.follow(workers)]
    assert batches == list(ResumableBatches(95, 8, seed=3))


@pytest.mark.parametrize("window", [1, 5, 20, 100])
def test_expected_reads_agree_with_the_count(window: int) -> None:
    data = Blocks(1000)
    for _ in range(5):
        assert sum(len(batch) for batch in ClairvoyantLoader(data, 10, window=window)) == 1000
    expected = 5 * 100 / window * expected_reads(1000, 10 * window, SIZE)
    assert data.reads == pytest.approx(expected, rel=0.05)


def test_window_does_nothing_if_blocks_are_far_apart() -> None:
    reads = [1 / np.divide(n, expected_reads(10**6, n, 10)) for n in (64, 16 * 64)]
    assert 0.99 < reads[1] / reads[0] < 1


def test_window_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`window` must be at least 1, but is 0"):
        ClairvoyantLoader(Plain(), 3, window=0)
