"""Write and read traces in the Trace Event Format, which Perfetto and chrome://tracing open.

The format is described in "Trace Event Format" (Google, 2016): complete events ("ph": "X") with a
start `ts` and a length `dur` in microseconds, and metadata events ("ph": "M") that name threads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from course_utils.measure.spans import STAGES, Span, lanes, reach
from course_utils.measure.trace import Trace

PROCESS = 1  # all lanes stand in one process, so that Perfetto draws them below each other
# The format's own colour names, the nearest to those of the course.
COLOURS = {
    "read": "thread_state_running",
    "decode": "rail_response",
    "transform": "yellow",
    "collate": "good",
    "transfer": "rail_animation",
    "compute": "rail_load",
    "wait": "grey",
}


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """Return `trace` as the object that its JSON file holds; times begin at 0."""
    origin, _ = reach(trace)
    events = [_metadata("process_name", 0, {"name": trace.label or "training loop"})]
    thread = 0
    for lane in lanes(trace):
        # Perfetto draws nested events, but drops those that overlap in part: one thread per row.
        for row in range(lane.rows):
            thread += 1
            events.append(_metadata("thread_name", thread, {"name": lane.name}))
            events.append(_metadata("thread_sort_index", thread, {"sort_index": thread}))
            spans = (placed.span for placed in lane.placed if placed.row == row)
            events += (_event(span, thread, origin) for span in spans)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"label": trace.label, "note": trace.note, "clock": "perf_counter_ns"},
    }


def _metadata(name: str, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": PROCESS, "tid": thread, "name": name, "args": args}


def _event(span: Span, thread: int, origin: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": thread,
        "name": span.stage,
        "cat": span.stage,
        "cname": COLOURS[span.stage],
        "ts": (span.start_ns - origin) / 1e3,
        "dur": span.duration_ns / 1e3,
        "args": {"batch": span.batch},
    }


def save_chrome(trace: Trace, path: str | Path, **about: Any) -> Path:
    """Write `trace` to `path` as JSON for https://ui.perfetto.dev and return the path.

    `about` is what else the file shall say of the run, such as the machine; it has to be JSON.

    Raises:
        OSError: the file cannot be written.
    """
    path = Path(path)
    data = chrome_trace(trace)
    data["otherData"] |= about
    try:
        path.write_text(json.dumps(data) + "\n", "utf-8")
    except OSError as error:
        reason = f"cannot write the trace to {path} ({error.strerror}); choose another place."
        raise OSError(error.errno, reason) from None
    return path


def load_chrome(path: str | Path) -> Trace:
    """Read a trace that `save_chrome` wrote; events of other kinds are passed over.

    Raises:
        ValueError: if the file holds no trace.
    """
    try:
        return _trace_of(json.loads(Path(path).read_text("utf-8")))
    except (AttributeError, KeyError, TypeError, ValueError):  # not JSON, or JSON of something else
        raise ValueError(f"{path} holds no Chrome trace; write one with save_chrome.") from None


def _trace_of(data: Any) -> Trace:
    events, about = data["traceEvents"], data.get("otherData", {})
    trace = Trace(clock=lambda: 0, label=about.get("label", ""))
    trace.note = about.get("note", "")
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    for event in events:
        if event.get("ph") == "X" and event.get("name") in STAGES:
            start, end = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
            batch = event.get("args", {}).get("batch", -1)
            trace.add(Span(names[event["tid"]], event["name"], start, end, batch))
    trace.end_ns = max((span.end_ns for span in trace.spans), default=0)
    return trace
