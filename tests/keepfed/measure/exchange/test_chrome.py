from dataclasses import replace

from course_utils.hardware.gpu.recordings import listing, recordings
from keepfed.measure.exchange import save_chrome
from keepfed.measure.exchange.chrome import chrome_trace, load_chrome
from keepfed.measure.simulate import Pipeline, simulate
from tests.keepfed.measure.handmade import span, trace_of

FACTS = {"gpu": "emulated H200", "date": "2026-11-21", "command": "python tests/gpu/run.py"}


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
    threads = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events]
    assert threads == [
        ("read", 1, 0, 5_000),
        ("read", 2, 3_000, 5_000),
        ("wait", 3, 0, 8_000),
        ("decode", 3, 1_000, 1_000),
    ]
    assert set(load_chrome(save_chrome(trace, tmp_path / "trace.json")).spans) == set(trace.spans)


def test_recordings_name_their_machine_and_compare_two_devices(tmp_path):
    assert "make gpu-check" in listing(recordings(tmp_path))
    for name in ("pinned", "naive"):  # as in tests/gpu/run.py
        for kind, read_ms in (("measured", 10), ("emulated", 30)):
            recorded = simulate(replace(Pipeline(step_ms=10), read_ms=read_ms))
            file = tmp_path / f"h200-{name}-{kind}.json"
            save_chrome(recorded, file, **FACTS, loop={"name": name})
    found = recordings(tmp_path)
    first, second = listing(found).splitlines()
    assert second.startswith("pinned: ")
    assert first == (
        "naive: GPU busy 50 % measured, 25 % emulated, 25.0 points apart "
        "(emulated H200, 2026-11-21, python tests/gpu/run.py)"
    )
    assert found[0].timeline().picture.names == ("measured, emulated H200", "emulated")
