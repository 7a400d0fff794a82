from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from course_utils.measure.diagnosis.gauges import ROWS, Gauges, bytes_read, own_bytes
from course_utils.measure.hook.loader_hook import listen
from tests.measure.datasets import Numbers


@pytest.mark.parametrize("workers", [0, 2])
def test_every_fetch_is_noted_by_the_worker_that_did_it(workers: int) -> None:
    gauges = Gauges(workers)
    list(listen(DataLoader(Numbers(), 3, num_workers=workers), [gauges]))
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


def test_the_system_tells_of_this_process_or_nothing() -> None:
    assert own_bytes() > 1e6
    assert all(count >= 0 for count in bytes_read())
