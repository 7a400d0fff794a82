from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import Summary


def summary(**times: Any) -> Summary:
    return simulate(Pipeline(steps=200, **times)).summary()


@pytest.mark.parametrize(
    ("times", "rate"),
    [
        ({"read_ms": 80, "step_ms": 50}, 7.7),
        ({"read_ms": 80, "step_ms": 50, "num_workers": 1}, 12.5),
        ({"read_ms": 80, "step_ms": 50, "num_workers": 2}, 20.0),
        ({"read_ms": 80, "step_ms": 50, "num_workers": 4}, 20.0),
        # workers scale to the cores and to what the storage serves at a time, and no further
        ({"decode_ms": 160, "step_ms": 20, "num_workers": 8, "cores": 2}, 2 / 0.160),
        ({"read_ms": 80, "step_ms": 20, "num_workers": 8, "storage_streams": 1}, 1 / 0.080),
    ],
)
def test_the_rates_of_the_formula_are_met(times: dict[str, Any], rate: float) -> None:
    found = summary(**times)
    assert found.steps / found.total_s == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("prefetch_factor", [1, 2, 8, 32])
def test_prefetching_deeper_does_not_raise_the_throughput(prefetch_factor: int) -> None:
    found = summary(read_ms=80, step_ms=50, num_workers=1, prefetch_factor=prefetch_factor)
    assert found.idle == pytest.approx(1 - 50 / 80, abs=0.01)


def test_prefetching_deeper_hides_jitter() -> None:
    times = {"read_ms": 90, "step_ms": 50, "num_workers": 2, "jitter": 0.8}
    deep, shallow = (summary(**times, prefetch_factor=depth) for depth in (8, 1))
    assert deep.idle < shallow.idle - 0.05


WORKERS = {"read_ms": 10, "step_ms": 50, "num_workers": 2}


@pytest.mark.parametrize(
    ("times", "au"),
    [
        ({**WORKERS, "copy_ms": 25}, 50 / 75),  # on the same stream it adds to every step
        ({**WORKERS, "copy_ms": 25, "pinned": True, "overlap": True}, 1.0),
        ({"read_ms": 80, "step_ms": 50, "sync": False}, 50 / 80),  # the main process runs ahead
        ({**WORKERS, "host_ms": 5}, 50 / 55),
        ({**WORKERS, "host_ms": 5, "sync": False}, 1.0),
    ],
)
def test_a_step_takes_longer_by_what_nothing_hides(times: dict[str, Any], au: float) -> None:
    assert summary(**times).au == pytest.approx(au, abs=0.01)


def test_start_up_delays_the_first_step_only() -> None:
    found = summary(**WORKERS, start_up_ms=1000)
    assert found.start_up_s == pytest.approx(1.01)
    assert found.au == 1.0


def test_no_lane_does_two_things_at_once_and_every_batch_comes_once() -> None:
    times: Any = {"read_ms": 30, "decode_ms": 20, "copy_ms": 5, "num_workers": 3, "cores": 2}
    trace = simulate(Pipeline(**times, jitter=0.5, steps=50, seed=3))
    for lane in set(trace.lanes) - {"main"}:
        spans = [span for span in trace.spans if span.lane == lane]
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(spans))
    for stage in ("read", "transfer", "compute"):
        batches = [span.batch for span in trace.spans if span.stage == stage]
        assert sorted(batches) == list(range(50))
    assert trace.summary().complete
    assert simulate(Pipeline(**times, jitter=0.5, steps=50, seed=3)).spans == trace.spans


@pytest.mark.parametrize(
    "wrong", [{"step_ms": -1}, {"steps": 0}, {"cores": 0}, {"storage_streams": 0}]
)
def test_impossible_pipelines_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"negative|at least 1"):
        Pipeline(**wrong)
