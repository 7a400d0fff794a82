from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from keepfed.measure.diagnosis.fetch_ring import ROWS, FetchRing
from keepfed.measure.hook import FetchMeter, ProcessFigures, bytes_read, listen, own_bytes
from keepfed.measure.records import MAIN
from tests.keepfed.measure.datasets import Numbers


@pytest.mark.parametrize("workers", [0, 2])
def test_every_fetch_is_noted_by_the_worker_that_did_it(workers: int) -> None:
    ring = FetchRing(workers)
    meter = FetchMeter(ring, about_process=ProcessFigures())
    list(listen(DataLoader(Numbers(), 3, num_workers=workers), [meter]))
    fetches = ring.fetches()
    assert len(fetches) == 4
    assert {fetch.worker for fetch in fetches} == (set(range(workers)) or {MAIN})
    for fetch in fetches:
        assert fetch.wall_ns >= fetch.collate_ns > 0
        assert fetch.process_cpu_ns > 0
        assert fetch.pool_threads > 0
    for number in range(ROWS):  # the oldest are forgotten
        ring.take(fetches[0]._replace(ended_ns=10**18 + number), [], None)
    ends = [f.ended_ns for f in ring.fetches() if f.worker == fetches[0].worker]
    assert ends == [10**18 + n for n in range(ROWS)]


def test_the_system_tells_of_this_process_or_nothing() -> None:
    assert own_bytes() > 1e6
    assert all(count >= 0 for count in bytes_read())
