from keepfed.measure.ranks import find_straggler
from keepfed.measure.spans import OTHERS
from keepfed.measure.trace import Trace
from tests.measure.handmade import span, trace_of

STEPS = 5


def rank(read_ms: float, *, step_ms: float = 10, pace_ms: float = 40) -> Trace:
    """Return the trace of a rank that loads, steps and waits for the others `STEPS` times."""
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


def test_find_straggler_names_the_last_rank_and_its_slow_stage() -> None:
    found = find_straggler([rank(2), rank(30), rank(2)])
    assert found.rank == 1
    assert found.last == [0, STEPS - 1, 0]  # the first meeting is not counted
    assert found.stage == "read"
    assert str(found) == (
        "Rank 1 delays the others: it arrives last at 4 of 4 meetings, and\n"
        "the others wait 70 % of the time for it. "
        "Per batch it needs 30 ms to read, the others 2.0 ms."
    )
    slow_gpu = find_straggler([rank(2), rank(2, step_ms=30)])
    assert (slow_gpu.rank, slow_gpu.stage) == (1, "compute")


def test_equally_fast_ranks_have_no_straggler() -> None:
    found = find_straggler([rank(10)] * 4)
    assert found.rank is None
    assert str(found).startswith("No rank delays the others. On average, a rank waits 0 %")


def test_ranks_are_compared_up_to_their_last_common_meeting() -> None:
    short = trace_of(*[one for one in rank(2).spans if one.batch < 3])
    assert find_straggler([short, rank(30)]).meetings == 2
