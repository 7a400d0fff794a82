from keepfed.measure.exchange import save_chrome
from keepfed.measure.exchange.chrome import chrome_trace, load_chrome
from keepfed.measure.simulate import Pipeline, simulate


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
