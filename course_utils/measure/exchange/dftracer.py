"""Read what DFTracer recorded, the tracer of I/O that DLIO and HPC centres use.

A file has one JSON object a line, for one process. DFTracer itself names the calls to the file
system ("POSIX", "STDIO"); names of anything else come from the program.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.measure.spans import Span
from course_utils.measure.trace import Trace

_UNITS = {"NS": 1, "US": 1_000, "MS": 1_000_000}
_READS = ("open", "read", "pread", "fopen", "fread")
_STAGES = {  # what a program says it does: DLIO, and DFTracer's own names for training loops
    "compute": "compute",
    "preprocess": "transform",
    "collate": "collate",
    "transfer": "transfer",
    "device": "transfer",
}
_LOADING = ("read", "decode", "transform", "collate")


@dataclass(frozen=True)
class _Event:
    process: tuple[Any, Any]  # machine and process id
    thread: Any
    name: str
    category: str
    start_ns: int
    end_ns: int

    @property
    def stage(self) -> str | None:
        """The course's word for it; None for what is none of its stages."""
        last = self.name.rsplit(".", 1)[-1]
        if self.category in ("POSIX", "STDIO"):
            return "read" if self.name.startswith(_READS) else None
        if last == "iter":  # of a loop over a loader: until it hands out the next batch
            return "wait"
        if last in ("yield", "block", "init", "__init__", "worker_init"):
            return None
        if known := _STAGES.get(last) or _STAGES.get(self.category):
            return known
        # The fetching of one sample: what of it is not reading is mostly decoding.
        fetches = last in ("__getitem__", "item") or last.startswith("fetch")
        return "decode" if fetches or self.category == "reader" else None


def load_dftracer(path: str | Path) -> Trace:
    """Read a DFTracer file (.pfw or .pfw.gz), or every one in a folder; times begin at 0.

    Lanes: "main" is the process that computes or waits for batches, "worker N" are the others in
    the order in which they started. Which batch a worker works for is not in the file.

    Raises:
        ValueError: there is no DFTracer event in it.
    """
    path = Path(path)
    files = sorted(path.glob("*.pfw*")) if path.is_dir() else [path]
    events = [event for file in files for event in _events(file)]
    if not any(event.stage for event in events):
        raise ValueError(
            f"{path} holds no DFTracer events of a loader; run the program with DFTRACER_ENABLE=1 "
            "and give its .pfw or .pfw.gz file, or their folder."
        )
    return _trace_of(events, path.name.split(".")[0])


def _events(file: Path) -> Iterator[_Event]:
    unit = _UNITS["US"]
    for record in _records(file):
        about = record.get("args") or {}
        if record["name"] == "CM" and about.get("name") == "time_metric":
            unit = _UNITS.get(str(about.get("value")), unit)
        if "ts" in record and "dur" in record:
            start = int(record["ts"]) * unit
            process = about.get("hhash"), record["pid"]
            end = start + int(record["dur"]) * unit
            yield _Event(process, record["tid"], record["name"], record["cat"], start, end)


def _records(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file; a line cut short by a kill ends it."""
    content = file.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = _unpacked(content)
    for line in content.decode("utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line.strip().rstrip(","))
        except ValueError:  # the brackets around it all, too
            continue
        if isinstance(record, dict) and {"name", "cat", "pid", "tid"} <= record.keys():
            yield record


def _unpacked(content: bytes) -> bytes:
    """Decompress what is there of one or several gzip members."""
    text = b""
    while content:
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            text += member.decompress(content)
        except zlib.error:
            break
        content = member.unused_data
    return text


def _trace_of(events: Sequence[_Event], label: str) -> Trace:
    names = _lane_names(events)
    by_lane: dict[str, list[_Event]] = {}
    for event in events:
        if event.stage:
            by_lane.setdefault(names[event.process, event.thread], []).append(event)
    waits = sorted(event.start_ns for event in events if event.stage == "wait")
    trace = Trace(clock=lambda: 0, label=label)
    spans = [
        span
        for lane, of_lane in by_lane.items()
        for span in (*_whole(lane, of_lane, waits), *_innermost(lane, of_lane))
        if not waits or span.end_ns > waits[0]  # what was before the loop is not part of it
    ]
    origin = min(span.start_ns for span in spans)
    for span in spans:
        moved = span.start_ns - origin, span.end_ns - origin
        trace.add(span._replace(start_ns=moved[0], end_ns=moved[1]))
    trace.served, trace.sample_ids = len(waits), None
    trace.end_ns = max(span.end_ns for span in trace.spans)
    trace.mention("recorded by DFTracer")
    if any(event.category == "dlio_benchmark" for event in events):
        trace.mention("DLIO sleeps where a GPU would compute")
    return trace


def _lane_names(events: Sequence[_Event]) -> dict[tuple[Any, Any], str]:
    began: dict[tuple[Any, Any], int] = {}
    for event in sorted(events, key=lambda e: e.start_ns):
        began.setdefault(event.process, event.start_ns)
    loops = {e.process for e in events if e.stage in ("wait", "compute")} or {next(iter(began))}
    mains = [process for process in began if process in loops]
    workers = [process for process in began if process not in loops]
    names = dict(zip(workers, (f"worker {n}" for n in range(len(workers))), strict=True))
    several = len(mains) > 1
    names |= {process: f"main {n}" if several else "main" for n, process in enumerate(mains)}
    threads = dict.fromkeys((e.process, e.thread) for e in events)
    return {(p, t): names[p] if t == p[1] else f"{names[p]}, thread {t}" for p, t in threads}


def _whole(lane: str, events: Iterable[_Event], waits: Sequence[int]) -> Iterator[Span]:
    """Yield what is drawn as it is, with the number of the batch that was last waited for."""
    for event in events:
        if event.stage and event.stage not in _LOADING:
            batch = bisect_right(waits, event.start_ns) - 1
            yield Span(lane, event.stage, event.start_ns, event.end_ns, batch)


def _innermost(lane: str, events: Iterable[_Event]) -> Iterator[Span]:
    """Yield the loading of samples, in which every moment counts for the innermost event."""
    loading = [e for e in events if e.stage in _LOADING]
    open_events: list[_Event] = []
    reached = 0
    for event in (*sorted(loading, key=lambda e: (e.start_ns, -e.end_ns)), None):
        start = event.start_ns if event else None
        while open_events and (start is None or open_events[-1].end_ns <= start):
            ended = open_events.pop()
            yield from _piece(lane, ended, reached, ended.end_ns)
            reached = max(reached, ended.end_ns)
        if event:
            if open_events:
                yield from _piece(lane, open_events[-1], reached, event.start_ns)
            reached = event.start_ns
            open_events.append(event)


def _piece(lane: str, event: _Event, start_ns: int, end_ns: int) -> Iterator[Span]:
    if end_ns > start_ns and event.stage:
        yield Span(lane, event.stage, start_ns, end_ns)
