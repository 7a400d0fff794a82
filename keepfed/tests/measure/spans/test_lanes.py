import numpy as np
import pytest

from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import STAGES, busy_share, busy_shares, idle_gaps, lanes
from keepfed.measure.spans.lanes import MAX_ROWS, place
from tests.measure.handmade import span, trace_of


def test_overlapping_spans_are_nested_or_get_new_rows():
    for spans, places in (
        ([("compute", 0, 5), ("compute", 5, 9)], ["00", "00"]),  # row, depth, and what is around
        ([("wait", 0, 10), ("read", 1, 9), ("decode", 2, 3)], ["00", "01 wait", "02 read"]),
        ([("read", 0, 10), ("read", 2, 5)], ["00", "10"]),  # two simultaneous reads
        ([("read", 0, 6), ("decode", 4, 10), ("read", 6, 8)], ["00", "10", "00"]),
    ):
        placed = place([span("main", *one) for one in spans])
        assert [f"{p.row}{p.depth} {p.under}".strip() for p in placed] == places, spans
    many = place([span("storage", "read", start, 100) for start in range(50)])
    assert max(p.row for p in many) == MAX_ROWS - 1


def test_idle_gaps_and_column_shares_match_the_summary():
    trace = simulate(Pipeline(read_ms=20, step_ms=15, num_workers=2, steps=20, jitter=0.3))
    summary = trace.summary()
    idle = sum(end - start for start, end in idle_gaps(trace)) / 1e9
    assert idle == pytest.approx(summary.idle * summary.total_s)
    for lane in lanes(trace):
        shares = busy_shares(lane.placed, np.linspace(0, trace.end_ns, 98))
        work = np.delete(shares, STAGES.index("wait"), axis=0)
        assert work.sum() / 97 * trace.end_ns == pytest.approx(lane.busy_ns())
        assert lane.name != "gpu" or busy_share(trace, lane) == summary.utilization
    assert idle_gaps(trace_of(span("main", "read", 0, 5))) == idle_gaps(trace_of()) == []
