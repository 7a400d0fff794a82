from itertools import pairwise
from typing import Any

import pytest

from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import Summary

READ = {"read_ms": 80, "step_ms": 50}
WORKERS = {"read_ms": 10, "step_ms": 50, "num_workers": 2}


def summary(**times: Any) -> Summary:
    return simulate(Pipeline(steps=200, **times)).summary()


def test_simulated_step_time_matches_formula() -> None:
    for times, ms in (
        (READ, 130),
        *(({**READ, "num_workers": 1, "prefetch_factor": depth}, 80) for depth in (1, 32)),
        ({**READ, "num_workers": 2}, 50),
        ({**READ, "num_workers": 4}, 50),
        # Throughput scales with workers up to the number of cores or of storage streams.
        ({"decode_ms": 160, "step_ms": 20, "num_workers": 8, "cores": 2}, 80),
        ({"read_ms": 80, "step_ms": 20, "num_workers": 8, "storage_streams": 1}, 80),
    ):
        found = summary(**times)
        assert 1e3 * found.total_s / found.steps == pytest.approx(ms, rel=0.02), times


def test_prefetching_hides_jitter_but_not_start_up() -> None:
    times = {"read_ms": 90, "step_ms": 50, "num_workers": 2, "jitter": 0.8}
    deep, shallow = (summary(**times, prefetch_factor=depth) for depth in (8, 1))
    assert deep.idle < shallow.idle - 0.05
    late = summary(**WORKERS, start_up_ms=1000)
    assert (late.start_up_s, late.au) == (pytest.approx(1.01), 1.0)


def test_only_overlapped_work_is_free() -> None:
    for times, au in (
        ({**WORKERS, "copy_ms": 25}, 50 / 75),  # a copy on the same stream adds to every step
        ({**WORKERS, "copy_ms": 25, "pinned": True, "overlap": True}, 1.0),
        ({**READ, "sync": False}, 50 / 80),  # the main process runs ahead
        ({**WORKERS, "host_ms": 5}, 50 / 55),
        ({**WORKERS, "host_ms": 5, "sync": False}, 1.0),
    ):
        assert summary(**times).au == pytest.approx(au, abs=0.01), times


def test_simulated_spans_are_disjoint_and_complete() -> None:
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


def test_impossible_pipeline_raises_error() -> None:
    for wrong in ({"step_ms": -1}, {"steps": 0}, {"storage_streams": 0}):
        with pytest.raises(ValueError, match=r"must be at least [01]"):
            Pipeline(**wrong)
