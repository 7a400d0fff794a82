from __future__ import annotations

import multiprocessing
from itertools import count
from threading import Thread

import pytest

from course_utils.measure.spans import Span, activate, current, stage
from course_utils.measure.trace import Trace, record


def ticking(step: int = 10) -> object:
    """Return a clock that advances by `step` ns each time it is read."""
    ticks = count(0, step)
    return lambda: next(ticks)


def test_a_stage_outside_a_recording_leaves_no_trace() -> None:
    with stage("read"):
        assert current() is None


def test_a_stage_becomes_a_span_with_the_times_of_the_clock() -> None:
    with record(clock=ticking()) as trace, stage("read", lane="storage"):
        pass
    assert trace.spans == [Span("storage", "read", 10, 20)]


def test_a_stage_that_raises_is_recorded_and_the_error_passes() -> None:
    with record() as trace, pytest.raises(KeyError), stage("decode"):
        raise KeyError("x")
    assert [span.stage for span in trace.spans] == ["decode"]


def test_a_stage_of_another_thread_has_a_lane_of_its_own_and_belongs_to_no_batch() -> None:
    def read_ahead() -> None:
        with stage("read"):
            pass

    with record() as trace:
        trace.batch = 3
        read_ahead()
        thread = Thread(target=read_ahead)
        thread.start()
        thread.join()
    assert [(span.lane, span.batch) for span in trace.spans] == [("main", 3), ("thread", -1)]


def test_an_unknown_stage_is_refused_with_the_list_of_stages() -> None:
    with record(), pytest.raises(ValueError, match="read, decode, transform"):
        stage("loading")


def test_recording_ends_with_the_block_even_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), record():
        raise KeyboardInterrupt
    assert current() is None


def test_an_inner_recording_gives_the_outer_one_back() -> None:
    with record() as outer:
        with record():
            pass
        assert current() is outer


def test_actions_on_close_run_once_and_may_add_spans() -> None:
    with record() as trace:
        trace.on_close(lambda: trace.add(Span("gpu", "compute", 0, 1)))
    trace.close()
    assert len(trace.spans) == 1


def test_lanes_come_in_drawing_order() -> None:
    trace = Trace()
    for lane in ("gpu", "worker 10", "main", "worker 2", "storage", "copy"):
        trace.add(Span(lane, "read", 0, 1))
    assert trace.lanes == ["storage", "worker 2", "worker 10", "main", "copy", "gpu"]


def test_an_enclosing_span_is_sorted_before_the_ones_inside_it() -> None:
    trace = Trace()
    trace.add(Span("main", "read", 0, 5))
    trace.add(Span("main", "wait", 0, 9))
    assert [span.stage for span in trace.spans] == ["wait", "read"]


def test_any_iterable_can_be_traced() -> None:
    with record() as trace:
        assert list(trace.batches([[1, 2], [3]])) == [[1, 2], [3]]
    assert (trace.served, trace.samples, trace.sample_ids) == (2, 3, None)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_child_does_not_record_into_its_copy_of_the_trace() -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with record():
        child = context.Process(target=lambda: answers.put(current() is None))
        child.start()
        child.join()
    assert answers.get()


def test_activate_returns_the_trace_it_replaces() -> None:
    trace = Trace()
    assert activate(trace) is None
    assert activate(None) is trace
