import json
import re
from dataclasses import replace

import pytest

from course_utils.measure.exchange import listing, recordings, save_chrome
from course_utils.measure.exchange.chrome import NO_RECORDING, chrome_trace, load_chrome
from course_utils.measure.simulate import Pipeline, simulate
from tests.measure.handmade import naive, span, trace_of

FACTS = {"gpu": "emulated H200", "date": "2026-11-21", "command": "python tests/gpu/run.py"}


@pytest.fixture
def trace():
    trace = simulate(Pipeline(read_ms=7, decode_ms=3, step_ms=4, num_workers=2, jitter=0.5))
    trace.label, trace.note = "two workers", "emulated RTX 3090"
    return trace


def test_every_event_has_the_fields_of_the_format(trace):
    for event in chrome_trace(trace)["traceEvents"]:
        assert {"ph", "pid", "tid", "name", "args"} <= event.keys()
        assert {type(event["pid"]), type(event["tid"])} == {int}
        assert event["ph"] == "M" or min(event["ts"], event["dur"]) >= 0


def test_times_are_microseconds_from_the_first_span():
    event = chrome_trace(trace_of(span("gpu", "compute", 1_000, 1_002.5, 7)))["traceEvents"][-1]
    assert (event["name"], event["ts"], event["dur"]) == ("compute", 0, 2_500)
    assert event["args"] == {"batch": 7}


def test_lanes_are_named_threads_in_drawing_order(trace):
    events = chrome_trace(trace)["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert [named[tid] for tid in sorted(named, key=order.__getitem__)] == trace.lanes
    assert {e["tid"] for e in events if e["ph"] == "X"} == named.keys()


def test_spans_that_overlap_stand_in_threads_of_their_own_and_are_one_lane_again(tmp_path):
    trace = trace_of(
        span("storage", "read", 0, 5, 0),
        span("storage", "read", 3, 8, 1),
        span("main", "wait", 0, 8),
        span("main", "decode", 1, 2),
    )
    events = [e for e in chrome_trace(trace)["traceEvents"] if e["ph"] == "X"]
    threads = [(e["name"], e["tid"]) for e in events]
    assert threads == [("read", 1), ("read", 2), ("wait", 3), ("decode", 3)]
    assert set(load_chrome(save_chrome(trace, tmp_path / "trace.json")).spans) == set(trace.spans)


def test_saving_and_loading_gives_the_same_trace(trace, tmp_path):
    again = load_chrome(save_chrome(trace, tmp_path / "trace.json"))
    assert again.spans == trace.spans
    assert (again.label, again.note) == (trace.label, trace.note)
    assert again.summary().utilisation == trace.summary().utilisation


def test_events_of_other_programs_are_passed_over(tmp_path):
    file = save_chrome(naive(steps=1), tmp_path / "trace.json")
    data, other = json.loads(file.read_text()), {"pid": 9, "tid": 9, "ts": 0}
    data["traceEvents"] += [{**other, "ph": "X", "name": "aten::mm", "dur": 1}]
    data["traceEvents"] += [{**other, "ph": "i", "name": "read"}]
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


def keep(folder, name, *, read_ms=(10, 10), **about):
    """Make a recording as tests/gpu/run.py does, of a device that is emulated."""
    for kind, ms in zip(("measured", "emulated"), read_ms, strict=True):
        recorded = simulate(replace(Pipeline(step_ms=10), read_ms=ms))
        about = {**FACTS, "loop": {"name": name}, **about}
        save_chrome(recorded, folder / f"h200-{name}-{kind}.json", **about)


def test_without_recordings_one_sentence_says_how_they_are_made(tmp_path):
    assert listing(recordings(tmp_path)) == NO_RECORDING
    assert listing(recordings())  # those that come with the course can be read


def test_a_recording_says_its_machine_and_compares_the_two_devices(tmp_path):
    keep(tmp_path, "naive", read_ms=(10, 30))
    (found,) = recordings(tmp_path)
    assert str(found) == (
        "naive: GPU busy 50 % measured, 25 % emulated, 25.0 points apart "
        "(emulated H200, 2026-11-21, python tests/gpu/run.py)"
    )
    picture = found.timeline().picture
    assert picture.names == ("measured, emulated H200", "emulated")
    assert len(picture.traces) == 2


def test_recordings_are_sorted_and_one_without_its_twin_is_left_out(tmp_path):
    for name in ("pinned", "naive", "alone"):
        keep(tmp_path, name)
    (tmp_path / "h200-alone-emulated.json").unlink()
    assert [found.loop for found in recordings(tmp_path)] == ["naive", "pinned"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data["otherData"].pop("gpu"), "does not say its gpu; record it"),
        (lambda data: data.pop("otherData"), "does not say its gpu"),
        (lambda data: data["otherData"].update(loop="naive"), "does not name its loop"),
        (lambda data: data.clear(), "holds no Chrome trace"),
    ],
)
def test_a_file_that_is_no_recording_is_named(spoil, says, tmp_path):
    keep(tmp_path, "naive")
    path = tmp_path / "h200-naive-measured.json"
    data = json.loads(path.read_text())
    spoil(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"naive-measured.json {says}"):
        recordings(tmp_path)
