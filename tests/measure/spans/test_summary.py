from __future__ import annotations

from typing import Any

import pytest

from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import hidden_share, summarise, union
from tests.measure.handmade import span, trace_of


def rows(*found: tuple[str, str, float, float, int]) -> Any:
    return trace_of(*(span(*row) for row in found))


SERIAL = rows(
    ("main", "wait", 0, 60, 0),
    ("main", "read", 0, 40, 0),
    ("main", "decode", 40, 60, 0),
    ("gpu", "compute", 60, 100, 0),
    ("main", "wait", 100, 160, 1),
    ("main", "read", 100, 140, 1),
    ("gpu", "compute", 160, 200, 1),
)


def test_utilisation_is_compute_over_all_and_idle_is_the_rest() -> None:
    summary = summarise(SERIAL)
    assert (summary.utilisation, summary.idle) == (0.4, 0.6)


def test_au_leaves_the_first_step_out() -> None:
    assert summarise(SERIAL).au == 0.4
    steps = [("gpu", "compute", start, start + 10, 0) for start in (90, 100)]
    warm = summarise(rows(("main", "wait", 0, 90, 0), *steps))
    assert (warm.au, warm.utilisation) == (1.0, pytest.approx(20 / 110))


def test_the_stall_is_divided_among_the_stages_of_the_awaited_batch() -> None:
    summary = summarise(SERIAL)
    assert (summary.stall["read"], summary.stall["decode"]) == (0.4, 0.1)
    assert summary.stall["wait"] == pytest.approx(0.1)  # nobody says what happened from 140 to 160
    assert sum(summary.stall.values()) + summary.utilisation == pytest.approx(1)


def test_work_for_later_batches_is_not_blamed_for_the_stall() -> None:
    trace = rows(
        ("worker 0", "read", 0, 10, 0),
        ("worker 1", "read", 0, 20, 1),
        ("gpu", "compute", 10, 15, 0),
        ("gpu", "compute", 20, 25, 1),
    )
    assert summarise(trace).stall["read"] == pytest.approx(15 / 25)


def test_a_loop_that_copies_ahead_waits_for_the_batch_after_the_next_step() -> None:
    times = {"read_ms": 80, "step_ms": 20, "copy_ms": 5}
    trace = simulate(Pipeline(**times, num_workers=1, pinned=True, overlap=True))
    assert summarise(trace).stall["read"] == pytest.approx(summarise(trace).idle, abs=0.02)


def test_all_of_the_loading_is_blamed_not_only_its_last_stage() -> None:
    trace = rows(
        ("worker 0", "read", 0, 75, 1),
        ("gpu", "compute", 0, 80, 0),
        ("worker 0", "decode", 75, 100, 1),
        ("gpu", "compute", 100, 150, 1),
    )
    stall = summarise(trace).stall
    assert stall["read"] == pytest.approx(0.75 * 20 / 150)
    assert stall["decode"] == pytest.approx(0.25 * 20 / 150)


def test_overlapping_kernels_are_not_counted_twice() -> None:
    trace = rows(("gpu", "compute", 0, 10, 0), ("gpu", "compute", 5, 20, 1))
    assert summarise(trace).utilisation == 1.0


def test_compute_on_the_main_lane_counts_when_there_is_no_gpu_lane() -> None:
    trace = rows(("main", "wait", 0, 5, 0), ("main", "compute", 5, 10, 0))
    assert summarise(trace).utilisation == 0.5


def test_a_trace_without_steps_says_what_is_missing() -> None:
    summary = summarise(rows(("main", "wait", 0, 5, 0)))
    assert summary.steps == 0
    assert "gpu.step" in str(summary)


def test_the_figures_are_told_in_short_lines() -> None:
    trace = rows(("main", "read", 0, 5, 0), ("gpu", "compute", 5, 10, 0))
    assert str(summarise(trace)).startswith(
        "The GPU computed 50 % of 0.01 s and was idle 50 %,\nwaiting mostly for read 50 %.\n"
        "AU 0 % over 1 step; "
    )


def test_repeated_samples_make_the_speed_up_void_and_samples_without_ids_leave_it_open() -> None:
    trace = rows(("gpu", "compute", 0, 10, 0))
    trace.serve(4, [1, 2, 1, 2])
    summary = summarise(trace)
    assert (summary.samples, summary.distinct, summary.complete) == (4, 2, False)
    assert "void" in str(summary)
    trace.serve(2, None)
    assert summarise(trace).distinct is None


def test_union_merges_what_touches() -> None:
    assert union([(5, 7), (0, 2), (2, 3), (1, 2)]) == [(0, 3), (5, 7)]


@pytest.mark.parametrize(
    ("copies", "steps", "share"),
    [
        ([(0, 10)], [(10, 30)], 0.0),
        ([(0, 10)], [(5, 30)], 0.5),
        ([(10, 20)], [(0, 30)], 1.0),
        ([(0, 10), (20, 30)], [(8, 22)], 0.2),
        ([(0, 10)], [(0, 5), (4, 8)], 0.8),
        ([], [(0, 10)], 1.0),  # nothing to hide is hidden
    ],
)
def test_a_copy_is_hidden_while_a_step_is_at_work_too(
    copies: list[tuple[int, int]], steps: list[tuple[int, int]], share: float
) -> None:
    spans = [span("main", "wait", 0, 10)]  # which counts for nothing
    spans += [span("copy", "transfer", *times) for times in copies]
    spans += [span("gpu", "compute", *times) for times in steps]
    assert hidden_share(spans) == pytest.approx(share)
