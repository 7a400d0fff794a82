"""Whom the ranks wait for, and why it is late, from traces made by hand."""

from keepfed.measure.ranks import find_straggler
from keepfed.measure.spans import OTHERS
from keepfed.measure.trace import Trace
from tests.keepfed.measure.handmade import span, trace_of

STEPS = 5


def rank(read_ms: float, *, step_ms: float = 10, pace_ms: float = 40) -> Trace:
    """Load, step, then wait until all are there, `STEPS` times."""
    spans = []
    for batch in range(STEPS):
        start = batch * pace_ms
        loaded, done = start + read_ms, start + read_ms + step_ms
        spans += [
            span("main", "wait", start, loaded, batch),
            span("main", "read", start, loaded, batch),
            span("gpu", "compute", loaded, done, batch),
            span(OTHERS, "wait", done, start + pace_ms, batch),
        ]
    trace = trace_of(*spans)
    trace.served = STEPS
    return trace


def test_the_rank_that_comes_last_and_its_slow_stage_are_named() -> None:
    found = find_straggler([rank(2), rank(30), rank(2)])
    assert found.rank == 1
    assert found.last == [0, STEPS - 1, 0]  # the first meeting is not counted
    assert found.stage == "read"
    assert str(found) == (
        "Rank 1 holds up the others: it comes last to 4 of 4 meetings, and\n"
        "they wait 70 % of the time for it. For a batch it needs 30 ms to read, the others 2.0 ms."
    )


def test_a_slow_gpu_is_found_too() -> None:
    found = find_straggler([rank(2), rank(2, step_ms=30)])
    assert (found.rank, found.stage) == (1, "compute")


def test_ranks_that_are_late_by_turns_hold_up_nobody() -> None:
    traces = [rank(10), rank(10), rank(10), rank(10)]
    found = find_straggler(traces)
    assert found.rank is None
    assert str(found).startswith("No rank holds up the others; on average one waits 0 %")


def test_ranks_that_never_met_are_told_how_to_mark_it() -> None:
    loop = trace_of(span("gpu", "compute", 0, 10, 0))
    assert "stage(" in str(find_straggler([loop, loop]))
    assert find_straggler([loop]).rank is None


def test_ranks_that_met_a_different_number_of_times_are_compared_as_far_as_they_went() -> None:
    short = trace_of(*[one for one in rank(2).spans if one.batch < 3])
    assert find_straggler([short, rank(30)]).meetings == 2
