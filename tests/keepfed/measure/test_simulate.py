from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import Summary

READ = {"read_ms": 80, "step_ms": 50}
WORKERS = {"read_ms": 10, "step_ms": 50, "num_workers": 2}


def summary(**times: Any) -> Summary:
    return simulate(Pipeline(steps=200, **times)).summary()


@pytest.mark.parametrize(
    ("times", "ms"),
    [
        (READ, 130),
        *(({**READ, "num_workers": 1, "prefetch_factor": depth}, 80) for depth in (1, 32)),
        ({**READ, "num_workers": 2}, 50),
        ({**READ, "num_workers": 4}, 50),
        # workers scale to the cores and to what the storage serves at a time, and no further
        ({"decode_ms": 160, "step_ms": 20, "num_workers": 8, "cores": 2}, 80),
        ({"read_ms": 80, "step_ms": 20, "num_workers": 8, "storage_streams": 1}, 80),
    ],
)
def test_the_rates_of_the_formula_are_met(times: dict[str, Any], ms: float) -> None:
    found = summary(**times)
    assert 1e3 * found.total_s / found.steps == pytest.approx(ms, rel=0.02)


def test_prefetching_deeper_hides_jitter_and_start_up_delays_the_first_step_only() -> None:
    times = {"read_ms": 90, "step_ms": 50, "num_workers": 2, "jitter": 0.8}
    deep, shallow = (summary(**times, prefetch_factor=depth) for depth in (8, 1))
    assert deep.idle < shallow.idle - 0.05
    late = summary(**WORKERS, start_up_ms=1000)
    assert (late.start_up_s, late.au) == (pytest.approx(1.01), 1.0)


@pytest.mark.parametrize(
    ("times", "au"),
    [
        ({**WORKERS, "copy_ms": 25}, 50 / 75),  # on the same stream it adds to every step
        ({**WORKERS, "copy_ms": 25, "pinned": True, "overlap": True}, 1.0),
        ({**READ, "sync": False}, 50 / 80),  # the main process runs ahead
        ({**WORKERS, "host_ms": 5}, 50 / 55),
        ({**WORKERS, "host_ms": 5, "sync": False}, 1.0),
    ],
)
def test_a_step_takes_longer_by_what_nothing_hides(times: dict[str, Any], au: float) -> None:
    assert summary(**times).au == pytest.approx(au, abs=0.01)


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


@pytest.mark.parametrize("wrong", [{"step_ms": -1}, {"steps": 0}, {"storage_streams": 0}])
def test_impossible_pipelines_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"negative|at least 1"):
        Pipeline(**wrong)
