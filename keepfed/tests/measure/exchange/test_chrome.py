from keepfed.measure.exchange import save_chrome
from keepfed.measure.exchange.chrome import chrome_trace, load_chrome
from keepfed.measure.simulate import Pipeline, simulate
from tests.measure.handmade import span, trace_of


def test_lanes_become_threads_and_events_follow_the_format(tmp_path):
    trace = simulate(Pipeline(read_ms=7, decode_ms=3, step_ms=4, num_workers=2, jitter=0.5))
    trace.label = "two workers"
    events = chrome_trace(trace)["traceEvents"]
    for event in events:
        assert {"ph", "pid", "tid", "name", "args"} <= event.keys()
        assert {type(event["pid"]), type(event["tid"])} == {int}
        assert event["ph"] == "M" or min(event["ts"], event["dur"]) >= 0
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert [named[tid] for tid in sorted(named, key=order.__getitem__)] == trace.lanes
    assert {e["tid"] for e in events if e["ph"] == "X"} == named.keys()
    again = load_chrome(save_chrome(trace, tmp_path / "trace.json"))
    assert again.spans == trace.spans
    assert (again.label, again.note) == (trace.label, trace.note)


def test_overlapping_spans_get_threads_and_load_as_one_lane(tmp_path):
    trace = trace_of(
        span("storage", "read", 0, 5, 0),
        span("storage", "read", 3, 8, 1),
        span("main", "wait", 0, 8),
        span("main", "decode", 1, 2),
    )
    events = [e for e in chrome_trace(trace)["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events] == [
        ("read", 1, 0, 5_000),
        ("read", 2, 3_000, 5_000),
        ("wait", 3, 0, 8_000),
        ("decode", 3, 1_000, 1_000),
    ]
    assert set(load_chrome(save_chrome(trace, tmp_path / "trace.json")).spans) == set(trace.spans)
