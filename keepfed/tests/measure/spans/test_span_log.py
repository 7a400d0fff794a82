import multiprocessing
from itertools import count
from threading import Thread

import pytest

from keepfed.measure.spans import Span, activate, current, stage
from keepfed.measure.trace import Trace, record


def read() -> None:
    with stage("read"):
        pass


def test_stage_records_a_span_and_checks_its_name() -> None:
    ticks = count(0, 10)
    with record(clock=lambda: next(ticks)) as trace:
        with pytest.raises(KeyError), stage("read", lane="storage"):
            raise KeyError("x")
        with pytest.raises(ValueError, match="read, decode, transform"):
            stage("loading")
    assert trace.spans == [Span("storage", "read", 10, 20)]
    assert (trace.begins_ns, trace.last_ns) == (10, 20)


def test_stage_of_another_thread_has_its_own_lane() -> None:
    with record() as trace:
        trace.batch = 3
        read()
        thread = Thread(target=read)
        thread.start()
        thread.join()
    assert [(span.lane, span.batch) for span in trace.spans] == [("main", 3), ("thread", -1)]


def test_recording_ends_with_the_block_and_resumes_the_outer_one() -> None:
    read()  # outside a recording
    with record() as outer:
        with pytest.raises(KeyboardInterrupt), record():
            raise KeyboardInterrupt
        assert current() is outer
    assert current() is None
    assert outer.spans == []
    assert activate(outer) is None
    assert activate(None) is outer


def test_actions_on_close_run_once_and_may_add_spans() -> None:
    with record() as trace:
        trace.on_close(lambda: trace.add(Span("gpu", "compute", 0, 1)))
    trace.close()
    assert len(trace.rows) == 1


def test_lanes_and_enclosing_spans_are_sorted() -> None:
    trace = Trace()
    for lane in ("gpu", "worker 10", "main", "worker 2", "storage", "copy"):
        trace.add(Span(lane, "read", 1, 5))
    trace.add(Span("main", "wait", 1, 9))
    assert trace.lanes == ["storage", "worker 2", "worker 10", "main", "copy", "gpu"]
    assert trace.spans[0].stage == "wait"


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_forked_child_does_not_record_to_its_copy_of_the_trace() -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with record():
        child = context.Process(target=lambda: answers.put(current() is None))
        child.start()
        child.join()
    assert answers.get()
