from __future__ import annotations

from torch.utils.data import DataLoader

from keepfed.measure.diagnosis.fetch_ring import ROWS, FetchRing
from keepfed.measure.hook import FetchMeter, ProcessFigures, bytes_read, listen, own_bytes
from keepfed.measure.records import MAIN
from tests.measure.datasets import Numbers


def test_each_worker_records_its_fetches() -> None:
    for workers in (0, 2):
        ring = FetchRing(workers)
        meter = FetchMeter(ring, about_process=ProcessFigures())
        list(listen(DataLoader(Numbers(), 3, num_workers=workers), [meter]))
        fetches = ring.fetches()
        assert len(fetches) == 4, workers
        assert {fetch.worker for fetch in fetches} == (set(range(workers)) or {MAIN}), workers
        for fetch in fetches:
            assert fetch.wall_ns >= fetch.collate_ns > 0, workers
            assert fetch.process_cpu_ns > 0, workers
            assert fetch.pool_threads > 0, workers
        for number in range(ROWS):  # overwrites the oldest fetches
            ring.take(fetches[0]._replace(ended_ns=10**18 + number), [], None)
        ends = [f.ended_ns for f in ring.fetches() if f.worker == fetches[0].worker]
        assert ends == [10**18 + n for n in range(ROWS)], workers


def test_process_figures_are_plausible() -> None:
    assert own_bytes() > 1e6
    assert all(count >= 0 for count in bytes_read())
