"""Write and read traces in the Trace Event Format, which Perfetto and chrome://tracing open.

So are the recordings of real GPUs kept that come with the course, each beside an emulated device
with the times measured there; `make gpu-check` makes them, on a machine with a GPU.

    recorded = recordings()
    print(listing(recorded))
    display(*(recording.timeline() for recording in recorded))

The format is described in "Trace Event Format" (Google, 2016): complete events ("ph": "X") with a
start `ts` and a length `dur` in microseconds, and metadata events ("ph": "M") that name threads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_utils.measure.spans import STAGES, Span, lanes, reach
from course_utils.measure.trace import Trace
from course_utils.paths import REPO
from course_utils.words import percent

if TYPE_CHECKING:
    from course_utils.measure.picture import Timeline

NO_RECORDING = (
    "No recording of a real GPU comes with this version; `make gpu-check` on a machine with one "
    "makes them."
)
MEASURED, EMULATED = "-measured.json", "-emulated.json"  # how the files of a recording end

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


@dataclass(frozen=True)
class Recording:
    """One training loop on a real GPU and on its emulated twin."""

    loop: str
    gpu: str
    date: str
    command: str
    measured: Trace
    emulated: Trace

    def timeline(self) -> Timeline:
        """Return both in one picture, on one time axis."""
        from course_utils.measure.picture import Timeline

        named = {f"measured, {self.gpu}": self.measured, "emulated": self.emulated}
        return Timeline(named, compare=True)

    def __str__(self) -> str:
        """Say what was recorded, where and when, and how busy the two devices were."""
        measured, emulated = (t.summary().utilisation for t in (self.measured, self.emulated))
        return (
            f"{self.loop}: GPU busy {percent(measured)} measured, {percent(emulated)} emulated, "
            f"{100 * abs(measured - emulated):.1f} points apart "
            f"({self.gpu}, {self.date}, {self.command})"
        )


def recordings(folder: str | Path | None = None) -> list[Recording]:
    """Return the recordings in `folder`, by name; default: those that come with the course.

    Raises:
        ValueError: if a file is no recording of `tests/gpu/run.py`.
    """
    place = REPO / "recordings" if folder is None else Path(folder)
    pairs = (
        (measured, measured.with_name(measured.name.removesuffix(MEASURED) + EMULATED))
        for measured in sorted(place.glob(f"*{MEASURED}"))
    )
    return [_recording(measured, emulated) for measured, emulated in pairs if emulated.is_file()]


def listing(found: Sequence[Recording]) -> str:
    """Return a line for each recording, or what to do if there are none."""
    return "\n".join(map(str, found)) or NO_RECORDING


def _recording(measured: Path, emulated: Path) -> Recording:
    traces = load_chrome(measured), load_chrome(emulated)
    about = json.loads(measured.read_text("utf-8")).get("otherData", {})
    try:
        gpu, date, command = (about[name] for name in ("gpu", "date", "command"))
        return Recording(about["loop"]["name"], gpu, date, command, *traces)
    except KeyError as missing:
        raise ValueError(
            f"{measured} does not say its {missing.args[0]}; record it again with make gpu-check."
        ) from None
    except TypeError:
        raise ValueError(
            f"{measured} does not name its loop as a recording does; record it again with "
            "make gpu-check."
        ) from None
