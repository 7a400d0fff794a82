"""The cost of a fetch that computes, waits, or has no core."""

from itertools import product
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader

from keepfed.measure.hook import FetchMeter, ProcessFigures, fetch_meter, traced_batches
from keepfed.measure.records import MAIN, Fetch
from keepfed.measure.spans import SpanLog, activate, current, stage
from keepfed.measure.trace import record
from tests.measure.datasets import Numbers

COMPUTED = 1_000_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Fake clocks of the fetching thread."""
    now = SimpleNamespace(wall=100, cpu=50, delay=7_000_000)
    monkeypatch.setattr(fetch_meter, "thread_time_ns", lambda: now.cpu)
    monkeypatch.setattr(fetch_meter, "process_time_ns", lambda: now.cpu)
    monkeypatch.setattr(fetch_meter, "delay_ns", lambda: now.delay)
    return now


@pytest.fixture
def meter(now: SimpleNamespace) -> FetchMeter:
    made = FetchMeter(spans=False)
    made._own = SpanLog(clock=lambda: now.wall)
    return made


def _fetched(meter: FetchMeter, now: SimpleNamespace, *, wall: int, delay: int) -> Fetch:
    meter.fetch_begins([0])
    now.wall, now.cpu, now.delay = now.wall + wall, now.cpu + COMPUTED, now.delay + delay
    meter.samples_made([])
    assert meter.batch_made("batch") == "batch"
    return meter.last.fetch


def test_delay_of_a_slow_fetch_is_not_waiting(meter: FetchMeter, now: SimpleNamespace) -> None:
    # without a core whenever it did not compute, in a part of this time, or never
    for before, delay in product((9_000_000, 1_500_000), (3_000_000, 1_200_000, 0)):
        for _ in range(2):
            _fetched(meter, now, wall=before, delay=0)
        fetch = _fetched(meter, now, wall=4_000_000, delay=delay)
        assert (fetch.cpu_ns, fetch.delay_ns) == (COMPUTED, delay), (before, delay)


def test_delay_is_at_most_the_idle_time(meter: FetchMeter, now: SimpleNamespace) -> None:
    _fetched(meter, now, wall=1_500_000, delay=0)
    now.delay += 50_000_000  # in the steps since the last reading
    assert _fetched(meter, now, wall=4_000_000, delay=0).delay_ns == 4_000_000 - COMPUTED


def test_sparse_meter_reads_few_short_fetches(meter: FetchMeter, now: SimpleNamespace) -> None:
    fetches = [_fetched(meter, now, wall=1_500_000, delay=300_000) for _ in range(33)]
    read = [number for number, fetch in enumerate(fetches) if fetch.cpu_ns >= 0]
    assert read == [0, 16, 32]
    assert [fetches[number].delay_ns for number in read] == [300_000] * 3


def test_stages_are_measured_with_and_without_a_recording(meter: FetchMeter) -> None:
    for log in (None, SpanLog(clock=iter(range(0, 1000, 10)).__next__)):
        activate(log)
        meter._own.clock = iter(range(0, 1000, 10)).__next__
        meter.fetch_begins([0])
        with stage("decode"):
            pass
        meter.samples_made([])
        meter.batch_made("batch")
        assert current() is log
        assert (meter.last.fetch.decode_ns, meter.last.fetch.worker) == (10, MAIN)
        assert log is None or [row[1] for row in log.rows] == ["decode"]
    activate(None)


def test_meter_that_is_off_measures_nothing(meter: FetchMeter) -> None:
    meter.on[0] = False
    meter.fetch_begins([0])
    meter.samples_made([])
    assert meter.batch_made("batch") == "batch"
    assert meter.last is None


def test_each_worker_reports_its_fetches() -> None:
    for workers in (0, 2):
        with record() as trace:
            loader = DataLoader(Numbers(), 3, num_workers=workers)
            list(traced_batches(trace, loader, figures=ProcessFigures()))
        assert len(trace.fetches) == 4, workers
        assert {fetch.worker for fetch in trace.fetches} == (set(range(workers)) or {MAIN}), workers
        for fetch in trace.fetches:
            assert fetch.wall_ns >= fetch.collate_ns > 0, workers
            assert fetch.process_cpu_ns > 0, workers
            assert fetch.pool_threads > 0, workers
