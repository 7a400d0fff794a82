"""Write and read traces in the Trace Event Format, which Perfetto and chrome://tracing open.

The format is described in "Trace Event Format" (Google, 2016): complete events ("ph": "X") with a
start `ts` and a length `dur` in microseconds, and metadata events ("ph": "M") that name threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keepfed.files import replace_file, writing
from keepfed.measure.kineto import times_ns
from keepfed.measure.spans import Span, lanes, reach
from keepfed.measure.trace import Trace
from keepfed.reading import read_json, reading

PROCESS = 1  # process ID of all lanes, so that Perfetto draws them below each other


def trace_of(
    spans: Iterable[Span], *, label: str, note: str, batches: int = 0, begins_ns: int = 0
) -> Trace:
    """Return `spans` as a trace, shifted so that it begins at `begins_ns`."""
    trace = Trace(clock=lambda: 0, label=label)
    spans = list(spans)
    origin = min((span.start_ns for span in spans), default=0) - begins_ns
    for lane, stage, start_ns, end_ns, batch in spans:
        trace.add(Span(lane, stage, start_ns - origin, end_ns - origin, batch))
    trace.end_ns = trace.last_ns
    trace.note, trace.served, trace.sample_ids = note, batches, None
    return trace


def save_chrome(trace: Trace, path: str | Path, **about: Any) -> Path:
    """Write `trace` to `path` as JSON for https://ui.perfetto.dev, and return the path.

    `about` are further facts about the run, such as the machine. They must be valid JSON.
    """
    path = Path(path)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(chrome_trace(trace, **about)) + "\n")
    return path


def chrome_trace(trace: Trace, **about: Any) -> dict[str, Any]:
    """Return `trace` as the object of its JSON file. Times begin at 0."""
    origin, _ = reach(trace)
    events = [_metadata("process_name", 0, {"name": trace.label or "training loop"})]
    # Perfetto drops events that partly overlap in one thread, so each row becomes a thread.
    rows = [(lane, row) for lane in lanes(trace) for row in range(lane.rows)]
    for thread, (lane, row) in enumerate(rows, 1):
        events.append(_metadata("thread_name", thread, {"name": lane.name}))
        events.append(_metadata("thread_sort_index", thread, {"sort_index": thread}))
        spans = (placed.span for placed in lane.placed if placed.row == row)
        events += (_event(span, thread, origin) for span in spans)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"label": trace.label, "note": trace.note, **about},
    }


def chrome_ranks(traces: Mapping[str, Trace]) -> dict[str, Any]:
    """Return several traces with one origin as one JSON object, each as a named process."""
    events: list[dict[str, Any]] = []
    for process, (name, trace) in enumerate(traces.items(), PROCESS):
        for event in chrome_trace(trace)["traceEvents"]:
            named = {"args": {"name": name}} if event["name"] == "process_name" else {}
            events.append({**event, "pid": process, **named})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _metadata(name: str, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": PROCESS, "tid": thread, "name": name, "args": args}


def _event(span: Span, thread: int, origin: int) -> dict[str, Any]:
    times = {"ts": (span.start_ns - origin) / 1e3, "dur": span.duration_ns / 1e3}
    what = {"name": span.stage, "cat": span.stage, "args": {"batch": span.batch}}
    return {"ph": "X", "pid": PROCESS, "tid": thread, **what, **times}


def load_chrome(path: str | Path, *, begins_ns: int = 0) -> Trace:
    """Read a trace that `save_chrome` wrote, shifted so that it begins at `begins_ns`."""
    with reading(path):
        data = read_json(path)
        rows, about = data["traceEvents"], data["otherData"]
        names = {e["tid"]: e["args"]["name"] for e in rows if e["name"] == "thread_name"}
        events = [e for e in rows if e["ph"] == "X"]
        return trace_of(
            (Span(names[e["tid"]], e["name"], *times_ns(e), e["args"]["batch"]) for e in events),
            label=about["label"],
            note=about["note"],
            begins_ns=begins_ns,
        )
