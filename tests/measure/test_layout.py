import numpy as np
import pytest

from course_utils.measure.picture import lanes
from course_utils.measure.picture.layout import MOST_ROWS, busy_shares, idle_gaps, place
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import STAGES
from tests.measure.handmade import MS, naive, span, trace_of


def places(*spans):
    return [(p.row, p.depth, p.under) for p in place(spans)]


def test_spans_one_after_the_other_share_a_row():
    assert places(span("gpu", "compute", 0, 5), span("gpu", "compute", 5, 9)) == [(0, 0, "")] * 2


def test_a_stage_inside_another_is_nested():
    spans = span("main", "wait", 0, 10), span("main", "read", 0, 6), span("main", "decode", 6, 10)
    assert places(*spans) == [(0, 0, ""), (0, 1, "wait"), (0, 1, "wait")]


def test_nesting_goes_as_deep_as_the_stages():
    spans = span("main", "wait", 0, 10), span("main", "read", 1, 9), span("main", "decode", 2, 3)
    assert places(*spans) == [(0, 0, ""), (0, 1, "wait"), (0, 2, "read")]


def test_two_reads_at_a_time_get_two_rows_even_if_one_contains_the_other():
    spans = span("storage", "read", 0, 10), span("storage", "read", 2, 5)
    assert [row for row, *_ in places(*spans)] == [0, 1]


def test_spans_that_overlap_in_part_get_two_rows():
    spans = span("main", "read", 0, 6), span("main", "decode", 4, 10), span("main", "read", 6, 8)
    assert [row for row, *_ in places(*spans)] == [0, 1, 0]


def test_rows_are_limited():
    spans = [span("storage", "read", start, 100) for start in range(50)]
    assert max(row for row, *_ in places(*spans)) == MOST_ROWS - 1


def test_lanes_come_in_drawing_order():
    trace = trace_of(span("gpu", "compute", 0, 1), span("worker 10", "read", 0, 1))
    trace.add(span("worker 9", "read", 0, 1))
    assert [lane.name for lane in lanes(trace)] == ["worker 9", "worker 10", "gpu"]


def test_a_waiting_lane_is_not_busy():
    trace = trace_of(span("main", "wait", 0, 10), span("main", "read", 2, 6))
    assert lanes(trace)[0].busy_ns() == 4 * MS


def test_idle_gaps_and_steps_fill_the_time_of_the_summary():
    trace = simulate(Pipeline(read_ms=20, step_ms=15, num_workers=1, steps=20, jitter=0.3))
    idle = sum(end - start for start, end in idle_gaps(trace)) / 1e9
    summary = trace.summary()
    assert idle == pytest.approx(summary.idle * summary.total_s)


def test_a_trace_without_steps_has_no_idle_gaps():
    assert idle_gaps(trace_of(span("main", "read", 0, 5))) == []
    assert idle_gaps(trace_of()) == []


def test_shares_of_a_column_are_what_each_stage_took_of_it():
    trace = naive(steps=2, load_ms=30, step_ms=10)
    main, gpu = lanes(trace)
    busy = busy_shares(gpu, (0, 80 * MS), 4)
    assert busy.shape == (1, len(STAGES), 4)
    np.testing.assert_allclose(busy[0, STAGES.index("compute")], [0, 0.5, 0, 0.5])
    loading = busy_shares(main, (0, 40 * MS), 4)[0]
    np.testing.assert_allclose(loading[STAGES.index("read")], [1, 1, 0.4, 0])
    np.testing.assert_allclose(loading[STAGES.index("decode")], [0, 0, 0.6, 0])
    np.testing.assert_allclose(loading[STAGES.index("wait")], 0, atol=1e-9)  # all of it is nested


def test_shares_add_up_to_the_busy_time():
    trace = simulate(Pipeline(read_ms=7, decode_ms=3, step_ms=4, num_workers=3, jitter=0.5))
    for lane in lanes(trace):
        window = 0, trace.end_ns
        shares = busy_shares(lane, window, 97)
        work = np.delete(shares, STAGES.index("wait"), axis=1)
        assert work.sum() / 97 * trace.end_ns == pytest.approx(lane.busy_ns())
