"""Read traces of DFTracer, the I/O tracer used by DLIO and HPC centres.

A file belongs to one process and has one JSON object per line. DFTracer names the file system calls
("POSIX", "STDIO"), and the traced program names all other events.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepfed.measure.exchange.chrome import Event, content_of, event_of, trace_of
from keepfed.measure.spans import Span
from keepfed.measure.trace import Trace

_UNITS = {"NS": 1, "US": 1_000, "MS": 1_000_000}
_READS = ("open", "read", "pread", "fopen", "fread")
_STAGES = {  # names that programs use: those of DLIO, and DFTracer's for training loops
    "iter": "wait",  # a loop waits until its loader returns the next batch
    "compute": "compute",
    "preprocess": "transform",
    "collate": "collate",
    "transfer": "transfer",
    "device": "transfer",
}
_LOADING = ("read", "decode", "transform", "collate")


def load_dftracer(path: str | Path) -> Trace:
    """Read a DFTracer file (.pfw or .pfw.gz), or all files in a folder, with times from 0.

    Lanes: "main" is the process that computes or waits for batches. "worker N" are the other
    processes in their starting order. The file does not record the batches of the workers.

    Raises:
        ValueError: If there is no DFTracer event of a loader.
    """
    path = Path(path)
    files = sorted(path.glob("*.pfw*")) if path.is_dir() else [path]
    events = [event for file in files for event in _events(file)]
    lanes = _lane_names(events)
    named = ((lanes[e.process, e.thread], _stage(e), e) for e in events)
    spans = [Span(lane, stage, e.start_ns, e.end_ns) for lane, stage, e in named if stage]
    if not spans:
        raise ValueError(
            f"{path} contains no DFTracer events of a loader. Run the program with "
            "DFTRACER_ENABLE=1, and pass its .pfw or .pfw.gz file, or the folder of these files."
        )
    waits = sorted(span.start_ns for span in spans if span.stage == "wait")
    kept = [
        span
        for span in (*_of_the_loop(spans, waits), *_innermost(spans))
        if not waits or span.end_ns > waits[0]  # drop spans from before the loop
    ]
    dlio = any(event.category == "dlio_benchmark" for event in events)
    note = "recorded by DFTracer" + (", DLIO sleeps instead of computing" if dlio else "")
    return trace_of(kept, label=path.name.split(".")[0], note=note, batches=len(waits))


def _events(file: Path) -> Iterator[Event]:
    """Yield the events in a file, without lines that a kill has truncated."""
    unit = _UNITS["US"]
    for record in _records(content_of(file)):
        about = record.get("args") or {}
        if record["name"] == "CM" and about.get("name") == "time_metric":
            unit = _UNITS.get(str(about.get("value")), unit)
        if "ts" in record and "dur" in record:
            machine = about.get("hhash")
            yield event_of({**record, "pid": (machine, record["pid"])}, unit)


def _records(content: bytes) -> Iterator[Mapping[str, Any]]:
    for line in content.decode("utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line.strip().rstrip(","))
        except ValueError:  # a truncated line, or one of the outer brackets
            continue
        if isinstance(record, dict) and {"name", "cat", "pid", "tid"} <= record.keys():
            yield record


def _stage(event: Event) -> str | None:
    """Return the course's name for the stage of an event, or None for other events."""
    last = event.name.rsplit(".", 1)[-1]
    if event.category in ("POSIX", "STDIO"):
        return "read" if event.name.startswith(_READS) else None
    if last in ("yield", "block", "init", "__init__", "worker_init"):
        return None
    if known := _STAGES.get(last) or _STAGES.get(event.category):
        return known
    # fetching one sample: the part that is not reading is mostly decoding
    fetches = last in ("__getitem__", "item") or last.startswith("fetch")
    return "decode" if fetches or event.category == "reader" else None


def _lane_names(events: Sequence[Event]) -> dict[tuple[Any, Any], str]:
    """Return the lane of every thread, named after its process, with numbers for several loops."""
    began = dict.fromkeys(e.process for e in sorted(events, key=lambda e: e.start_ns))
    loops = {e.process for e in events if _stage(e) in ("wait", "compute")} or {*list(began)[:1]}
    mains = [process for process in began if process in loops]
    workers = [process for process in began if process not in loops]
    names = {process: f"worker {n}" for n, process in enumerate(workers)}
    names |= {process: f"main {n}" if mains[1:] else "main" for n, process in enumerate(mains)}
    threads = dict.fromkeys((e.process, e.thread) for e in events)
    return {(p, t): names[p] if t == p[1] else f"{names[p]}, thread {t}" for p, t in threads}


def _of_the_loop(spans: Iterable[Span], waits: Sequence[int]) -> Iterator[Span]:
    """Yield the spans that are not loading, with the index of the last batch waited for."""
    for span in spans:
        if span.stage not in _LOADING:
            yield span._replace(batch=bisect_right(waits, span.start_ns) - 1)


def _innermost(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the loading spans, cut so that the spans of a lane do not overlap."""
    by_lane: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda s: (s.start_ns, -s.end_ns)):
        if span.stage in _LOADING:
            by_lane.setdefault(span.lane, []).append(span)
    for of_lane in by_lane.values():
        around: list[Span] = []
        reached = 0
        for following in (*of_lane, None):
            while around and (following is None or around[-1].end_ns <= following.start_ns):
                ended = around.pop()
                yield from _piece(ended, reached, ended.end_ns)
                reached = max(reached, ended.end_ns)
            if following:
                if around:
                    yield from _piece(around[-1], reached, following.start_ns)
                reached = following.start_ns
                around.append(following)


def _piece(span: Span, start_ns: int, end_ns: int) -> Iterator[Span]:
    if end_ns > start_ns:
        yield span._replace(start_ns=start_ns, end_ns=end_ns)
