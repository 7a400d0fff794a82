from __future__ import annotations

from itertools import pairwise

import pytest

from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import Summary


def summary(**times: float) -> Summary:
    return simulate(Pipeline(steps=200, **times)).summary()  # type: ignore[arg-type]


@pytest.mark.parametrize(("num_workers", "rate"), [(0, 7.7), (1, 12.5), (2, 20.0), (4, 20.0)])
def test_the_rates_of_the_model_are_met(num_workers: int, rate: float) -> None:
    found = summary(read_ms=80, step_ms=50, num_workers=num_workers)
    assert found.steps / found.total_s == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("prefetch_factor", [1, 2, 8, 32])
def test_prefetching_deeper_does_not_raise_the_throughput(prefetch_factor: int) -> None:
    found = summary(read_ms=80, step_ms=50, num_workers=1, prefetch_factor=prefetch_factor)
    assert found.idle == pytest.approx(1 - 50 / 80, abs=0.01)


def test_prefetching_deeper_hides_jitter() -> None:
    times = {"read_ms": 90, "step_ms": 50, "num_workers": 2, "jitter": 0.8}
    assert (
        summary(**times, prefetch_factor=8).idle < summary(**times, prefetch_factor=1).idle - 0.05
    )


def test_cpu_bound_workers_scale_to_the_cores_and_no_further() -> None:
    found = summary(decode_ms=160, step_ms=20, num_workers=8, cores=2)
    assert found.steps / found.total_s == pytest.approx(2 / 0.160, rel=0.02)


def test_storage_that_serves_one_reader_at_a_time_does_not_scale() -> None:
    found = summary(read_ms=80, step_ms=20, num_workers=8, storage_streams=1)
    assert found.steps / found.total_s == pytest.approx(1 / 0.080, rel=0.02)


def test_a_copy_on_the_same_stream_adds_to_every_step() -> None:
    found = summary(read_ms=10, copy_ms=25, step_ms=50, num_workers=2)
    assert found.au == pytest.approx(50 / 75, abs=0.01)


def test_an_overlapped_copy_is_hidden_behind_the_step() -> None:
    found = summary(read_ms=10, copy_ms=25, step_ms=50, num_workers=2, pinned=True, overlap=True)
    assert found.au == pytest.approx(1.0, abs=0.01)


def test_without_reading_the_loss_even_the_main_process_overlaps_loading_and_compute() -> None:
    found = summary(read_ms=80, step_ms=50, sync=False)
    assert found.au == pytest.approx(50 / 80, abs=0.01)


def test_the_time_of_the_main_process_adds_to_a_step_unless_the_loop_runs_ahead() -> None:
    times = {"read_ms": 10, "step_ms": 50, "num_workers": 2, "host_ms": 5}
    assert summary(**times).au == pytest.approx(50 / 55, abs=0.01)
    assert summary(**times, sync=False).au == pytest.approx(1.0, abs=0.01)


def test_start_up_delays_the_first_step_only() -> None:
    found = summary(read_ms=10, step_ms=50, num_workers=2, start_up_ms=1000)
    assert found.start_up_s == pytest.approx(1.01)
    assert found.au == 1.0


def test_no_lane_does_two_things_at_once() -> None:
    trace = simulate(
        Pipeline(read_ms=30, decode_ms=20, copy_ms=5, num_workers=3, jitter=0.5, cores=2)
    )
    for lane in set(trace.lanes) - {"main"}:
        spans = [span for span in trace.spans if span.lane == lane]
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(spans))


def test_every_batch_is_loaded_copied_and_computed_once_in_order() -> None:
    trace = simulate(Pipeline(read_ms=30, copy_ms=5, num_workers=3, jitter=0.5, steps=50))
    for stage in ("read", "transfer", "compute"):
        batches = [span.batch for span in trace.spans if span.stage == stage]
        assert sorted(batches) == list(range(50))
    assert trace.summary().complete


def test_the_same_seed_gives_the_same_trace() -> None:
    pipeline = Pipeline(read_ms=30, num_workers=2, jitter=0.4, seed=3)
    assert simulate(pipeline).spans == simulate(pipeline).spans


@pytest.mark.parametrize(
    "wrong", [{"step_ms": -1}, {"steps": 0}, {"cores": 0}, {"storage_streams": 0}]
)
def test_impossible_pipelines_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"negative|at least 1"):
        Pipeline(**wrong)  # type: ignore[arg-type]
