import json
import re

import pytest

from course_utils.measure.exchange import save_chrome
from course_utils.measure.exchange.chrome import chrome_trace, load_chrome
from course_utils.measure.simulate import Pipeline, simulate
from tests.measure.handmade import naive, span, trace_of


@pytest.fixture
def trace():
    trace = simulate(Pipeline(read_ms=7, decode_ms=3, step_ms=4, num_workers=2, jitter=0.5))
    trace.label, trace.note = "two workers", "emulated RTX 3090"
    return trace


def test_every_event_has_the_fields_of_the_format(trace):
    for event in chrome_trace(trace)["traceEvents"]:
        assert {"ph", "pid", "tid", "name", "args"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] in ("X", "M")
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0


def test_times_are_microseconds_from_the_first_span():
    trace = trace_of(span("gpu", "compute", 1_000, 1_002.5, 7))
    event = chrome_trace(trace)["traceEvents"][-1]
    assert (event["name"], event["ts"], event["dur"]) == ("compute", 0, 2_500)
    assert event["args"] == {"batch": 7}


def test_lanes_are_named_threads_in_drawing_order(trace):
    events = chrome_trace(trace)["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert [named[tid] for tid in sorted(named, key=order.__getitem__)] == trace.lanes
    assert {e["tid"] for e in events if e["ph"] == "X"} == named.keys()


def test_spans_that_overlap_stand_in_threads_of_their_own():
    trace = trace_of(span("storage", "read", 0, 5, 0), span("storage", "read", 3, 8, 1))
    trace.add(span("main", "wait", 0, 8))
    trace.add(span("main", "decode", 1, 2))
    events = [e for e in chrome_trace(trace)["traceEvents"] if e["ph"] == "X"]
    threads = [(e["name"], e["tid"]) for e in events]
    assert threads == [("read", 1), ("read", 2), ("wait", 3), ("decode", 3)]


def test_threads_of_one_lane_are_one_lane_again(tmp_path):
    trace = trace_of(span("storage", "read", 0, 5, 0), span("storage", "read", 3, 8, 1))
    assert load_chrome(save_chrome(trace, tmp_path / "trace.json")).spans == trace.spans


def test_what_is_emulated_is_said_in_the_file(trace):
    assert chrome_trace(trace)["otherData"]["note"] == "emulated RTX 3090"


def test_saving_and_loading_gives_the_same_trace(trace, tmp_path):
    again = load_chrome(save_chrome(trace, tmp_path / "trace.json"))
    assert again.spans == trace.spans
    assert (again.label, again.note) == (trace.label, trace.note)
    assert again.summary().utilisation == trace.summary().utilisation


def test_events_of_other_programs_are_passed_over(tmp_path):
    file = save_chrome(naive(steps=1), tmp_path / "trace.json")
    data = json.loads(file.read_text())
    data["traceEvents"].append(
        {"ph": "X", "pid": 9, "tid": 9, "name": "aten::mm", "ts": 0, "dur": 1}
    )
    data["traceEvents"].append({"ph": "i", "pid": 9, "tid": 9, "name": "read", "ts": 0})
    file.write_text(json.dumps(data))
    assert load_chrome(file).spans == naive(steps=1).spans


@pytest.mark.parametrize("content", ["", "no JSON", "[]", "{}", '{"traceEvents": 3}'])
def test_a_file_that_is_no_trace_is_named(content, tmp_path):
    file = tmp_path / "broken.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=re.escape(f"{file} holds no Chrome trace")):
        load_chrome(file)


def test_a_place_that_cannot_be_written_is_named(trace, tmp_path):
    with pytest.raises(OSError, match="choose another place"):
        save_chrome(trace, tmp_path / "missing" / "trace.json")
