from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import fetch as torch_fetch

from course_utils.measure.diagnosis.gauges import ROWS, Gauges, gauged, read_clocks
from course_utils.measure.process import affinity, bytes_read, own_bytes

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="the datasets are local"
)


class Computing(Dataset[int]):
    """Computes, and says how many threads its process may use for that."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        np.ones((400, 400)) @ np.ones((400, 400))
        pools = threadpool_info()
        return max(pool["num_threads"] for pool in pools)


def loader(workers: int) -> DataLoader[Any]:
    method = "fork" if workers else None
    return DataLoader(Computing(), 3, num_workers=workers, multiprocessing_context=method)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_every_fetch_is_noted_by_the_worker_that_did_it(workers: int) -> None:
    gauges, watched = Gauges(workers), loader(workers)
    with gauged(watched, gauges):
        list(watched)
    fetches = gauges.fetches()
    assert len(fetches) == 4
    assert {fetch.worker for fetch in fetches} == set(range(max(workers, 1)))
    for fetch in fetches:
        assert fetch.wall >= fetch.collate > 0
        assert fetch.process_cpu > 0


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_noted_any_more_afterwards(workers: int) -> None:
    gauges, watched = Gauges(workers), loader(workers)
    kinds: Any = (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher)
    before = [kind.fetch for kind in kinds], dict(vars(watched))
    with gauged(watched, gauges):
        pass
    assert ([kind.fetch for kind in kinds], dict(vars(watched))) == before
    list(watched)
    assert gauges.fetches() == []


@pytest.mark.parametrize("workers", [0, 1])
def test_pools_can_be_limited_to_one_thread_for_a_while(workers: int) -> None:
    watched, threads = loader(workers), torch.get_num_threads()
    pools = [pool["num_threads"] for pool in threadpool_info()]
    with gauged(watched, Gauges(workers), one_thread=True):
        assert {int(most) for batch in watched for most in batch} == {1}
    assert torch.get_num_threads() == threads
    assert [pool["num_threads"] for pool in threadpool_info()] == pools


def test_the_oldest_fetches_are_forgotten() -> None:
    gauges, watched = Gauges(0), loader(0)
    with gauged(watched, gauges):
        list(watched)
    first = gauges.fetches()[0]
    for number in range(ROWS):
        gauges.note(first._replace(end=1e9 + number))
    assert [fetch.end for fetch in gauges.fetches()] == [1e9 + n for n in range(ROWS)]


def test_the_clocks_go_forward() -> None:
    before = read_clocks()
    sum(range(100_000))
    after = read_clocks()
    assert after.wall > before.wall
    assert after.thread > before.thread
    assert after.process > before.process
    assert after.delay >= before.delay


def test_the_system_tells_of_this_process_or_nothing() -> None:
    assert own_bytes() > 1e6
    assert all(count >= 0 for count in bytes_read())
    assert affinity(0) == affinity(multiprocessing.current_process().pid or 0)
    assert affinity(2**30) == set()
