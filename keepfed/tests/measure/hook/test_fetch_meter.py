"""The cost of a fetch that computes, waits, or has no core."""

from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from keepfed.measure.hook import FetchMeter, fetch_meter
from keepfed.measure.records import MAIN, Fetch, Row, Sink
from keepfed.measure.spans import SpanLog, activate, current, stage

COMPUTED = 1_000_000


class Kept(Sink):
    """A sink that stores its fetches."""

    def __init__(self) -> None:
        self.fetches: list[Fetch] = []
        self.rows: list[Row] = []
        self.wanted = True

    def wants(self, index: Any) -> bool:
        return self.wanted

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        self.fetches.append(fetch)
        self.rows += rows
        return batch


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
    """A sparse meter with these clocks."""
    made = FetchMeter(Kept(), sparse=True)
    made._own = SpanLog(clock=lambda: now.wall)
    return made


def _fetched(meter: FetchMeter, now: SimpleNamespace, *, wall: int, delay: int) -> Fetch:
    meter.fetch_begins([0])
    now.wall, now.cpu, now.delay = now.wall + wall, now.cpu + COMPUTED, now.delay + delay
    meter.samples_made([])
    assert meter.batch_made("batch") == "batch"
    (sink,) = meter.sinks
    assert isinstance(sink, Kept)
    return sink.fetches[-1]


def test_delay_of_a_slow_fetch_is_not_waiting(meter: FetchMeter, now: SimpleNamespace) -> None:
    # without a core whenever it did not compute, in a part of this time, or never
    for before, delay in product((9_000_000, 1_500_000), (3_000_000, 1_200_000, 0)):
        for _ in range(2):
            _fetched(meter, now, wall=before, delay=0)
        fetch = _fetched(meter, now, wall=4_000_000, delay=delay)
        assert (fetch.cpu_ns, fetch.delay_ns) == (COMPUTED, delay), (before, delay)


def test_delay_is_at_most_the_time_without_computing(
    meter: FetchMeter, now: SimpleNamespace
) -> None:
    _fetched(meter, now, wall=1_500_000, delay=0)
    now.delay += 50_000_000  # in the steps since the last reading
    assert _fetched(meter, now, wall=4_000_000, delay=0).delay_ns == 4_000_000 - COMPUTED


def test_sparse_meter_reads_the_delay_of_a_few_short_fetches(
    meter: FetchMeter, now: SimpleNamespace
) -> None:
    fetches = [_fetched(meter, now, wall=1_500_000, delay=300_000) for _ in range(33)]
    read = [number for number, fetch in enumerate(fetches) if fetch.cpu_ns >= 0]
    assert read == [0, 16, 32]
    assert [fetches[number].delay_ns for number in read] == [300_000] * 3


def test_stages_are_measured_with_and_without_a_recording(meter: FetchMeter) -> None:
    (sink,) = meter.sinks
    assert isinstance(sink, Kept)
    for log in (None, SpanLog(clock=iter(range(0, 1000, 10)).__next__)):
        activate(log)
        meter._own.clock = iter(range(0, 1000, 10)).__next__
        meter.fetch_begins([0])
        with stage("decode"):
            pass
        meter.samples_made([])
        meter.batch_made("batch")
        assert current() is log
        assert (sink.fetches[-1].decode_ns, sink.fetches[-1].worker) == (10, MAIN)
        assert [row[1] for row in sink.rows] == ["decode"]
        sink.rows.clear()
    activate(None)


def test_unwanted_fetch_is_not_measured(meter: FetchMeter) -> None:
    (sink,) = meter.sinks
    assert isinstance(sink, Kept)
    sink.wanted = False
    meter.fetch_begins([0])
    meter.samples_made([])
    assert meter.batch_made("batch") == "batch"
    assert not sink.fetches
