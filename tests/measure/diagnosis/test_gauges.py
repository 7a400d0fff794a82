from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch.utils.data import DataLoader

from course_utils.measure.diagnosis.gauges import (
    ROWS,
    Gauges,
    affinity,
    bytes_read,
    own_bytes,
    single_threaded,
)
from course_utils.measure.hook.loader_hook import listen
from tests.measure.datasets import Numbers


class Computing(Numbers):
    """Computes, and says how many threads its process may use for that."""

    def __getitem__(self, index: int) -> float:
        np.ones((400, 400)) @ np.ones((400, 400))
        return max(pool["num_threads"] for pool in threadpool_info())


def loader(workers: int) -> DataLoader[Any]:
    return DataLoader(Computing(), 3, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_fetch_is_noted_by_the_worker_that_did_it(workers: int) -> None:
    gauges = Gauges(workers, one_thread=True)
    batches = list(listen(loader(workers), [gauges]))
    assert not workers or {int(most) for batch in batches for most in batch} == {1}
    fetches = gauges.fetches()
    assert len(fetches) == 4
    assert {fetch.worker for fetch in fetches} == set(range(max(workers, 1)))
    for fetch in fetches:
        assert fetch.wall >= fetch.collate > 0
        assert fetch.process_cpu > 0
    for number in range(ROWS):  # the oldest are forgotten
        gauges.note(fetches[0]._replace(end=1e9 + number))
    ends = [f.end for f in gauges.fetches() if f.worker == fetches[0].worker]
    assert ends == [1e9 + n for n in range(ROWS)]


def test_the_pools_of_this_process_are_limited_for_a_while() -> None:
    threads, pools = torch.get_num_threads(), [p["num_threads"] for p in threadpool_info()]
    with single_threaded():
        assert {int(most) for batch in loader(0) for most in batch} == {1}
    assert torch.get_num_threads() == threads
    assert [pool["num_threads"] for pool in threadpool_info()] == pools


def test_the_system_tells_of_this_process_or_nothing() -> None:
    assert own_bytes() > 1e6
    assert all(count >= 0 for count in bytes_read())
    assert affinity(0) == affinity(multiprocessing.current_process().pid or 0)
    assert affinity(2**30) == set()
