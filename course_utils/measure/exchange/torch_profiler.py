"""Read what torch.profiler exported, so that a profile of any training loop can be drawn.

    with torch.profiler.profile(schedule=schedule(wait=1, warmup=1, active=8)) as profiler:
        for batch in loader:
            train(batch)
            profiler.step()
    profiler.export_chrome_trace("profile.json.gz")
    load_profile("profile.json.gz").timeline()

The categories and names are those of Kineto, which writes the file: "kernel", "gpu_memcpy",
"gpu_memset" on the GPU, "cpu_op" and "user_annotation" on the host.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.measure.spans import Span, union
from course_utils.measure.trace import Trace

_NEXT = "enumerate(DataLoader)#"  # and the class of the iterator
_STEP = "ProfilerStep"
_GPU = ("kernel", "gpu_memset", "gpu_memcpy")
# What follows this closely is one piece of work, drawn and counted as one.
_KERNEL_GAP_NS = 10_000  # the GPU takes up its next kernel
_CALL_GAP_NS = 100_000  # Python goes from one operation to the next


@dataclass(frozen=True)
class _Event:
    name: str
    category: str
    process: Any
    thread: Any
    start_ns: int
    end_ns: int
    launch: Any  # links a kernel to the call that launched it; None where there is no link


def load_profile(path: str | Path) -> Trace:
    """Read a Chrome trace of torch.profiler (.json or .json.gz); times begin at 0.

    Lanes: "gpu" (compute: kernels), "copy" (transfer: copies to and from the device), "main" (wait:
    for the next batch) and, where nothing ran on a GPU, "cpu" (compute: the main thread).
    Worker processes are not in such a file; the note of the trace says so.

    Raises:
        ValueError: the file holds no profile.
    """
    path = Path(path)
    try:
        events = _events(json.loads(_content(path)))
    except (AttributeError, EOFError, KeyError, TypeError, ValueError, gzip.BadGzipFile):
        events = []
    if not any(e.category in (*_GPU, "cpu_op", "user_annotation") for e in events):
        raise ValueError(
            f"{path} holds no profile; write one with profiler.export_chrome_trace(path)."
        )
    return _trace_of(events, path.name.split(".")[0])


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def _events(data: Any) -> list[_Event]:
    found = [e for e in data["traceEvents"] if e.get("ph") == "X" and "cat" in e]
    origin = min((float(e["ts"]) for e in found), default=0.0)
    return [_event(e, origin) for e in found]


def _event(event: dict[str, Any], origin: float) -> _Event:
    start = round((float(event["ts"]) - origin) * 1e3)  # the file has microseconds
    return _Event(
        name=event["name"],
        category=event["cat"],
        process=event["pid"],
        thread=event["tid"],
        start_ns=start,
        end_ns=start + round(float(event.get("dur", 0)) * 1e3),
        launch=event.get("args", {}).get("correlation"),
    )


def _trace_of(events: Sequence[_Event], label: str) -> Trace:
    trace = Trace(clock=lambda: 0, label=label)
    main = _main_thread(events)
    mine = [e for e in events if (e.process, e.thread) == main]
    waits = [e for e in mine if e.name.startswith(_NEXT)]
    # A step begins by asking for its batch, or, without a DataLoader, where the profiler says.
    begins = sorted(e.start_ns for e in waits or _steps(mine))
    on_gpu = [e for e in events if e.category in _GPU]
    work = _gpu_spans(events, on_gpu, begins) if on_gpu else _cpu_spans(mine, begins)
    spans = [Span("main", "wait", e.start_ns, e.end_ns, _batch(e.start_ns, begins)) for e in waits]
    for span in (*spans, *work):
        trace.add(span)
    trace.served, trace.sample_ids = len(begins), None
    trace.end_ns = max((span.end_ns for span in trace.spans), default=0)
    trace.mention("recorded by torch.profiler, workers not in it")
    if not on_gpu:
        trace.mention("no GPU: cpu is the main thread")
    return trace


def _steps(events: Iterable[_Event]) -> list[_Event]:
    return [e for e in events if e.name.startswith(_STEP) and e.category == "user_annotation"]


def _main_thread(events: Sequence[_Event]) -> tuple[Any, Any]:
    """Return process and thread of the loop: where steps and batches are, else most operations."""
    host = [e for e in events if e.category in ("cpu_op", "user_annotation")]
    marked = [e for e in host if e.name.startswith((_NEXT, _STEP))]
    counted = Counter((e.process, e.thread) for e in marked or host)
    return counted.most_common(1)[0][0] if counted else (None, None)


def _batch(moment: int, begins: Sequence[int]) -> int:
    return bisect_right(begins, moment) - 1


def _gpu_spans(
    events: Iterable[_Event], on_gpu: Sequence[_Event], begins: Sequence[int]
) -> Iterator[Span]:
    """Yield kernels and copies, each with the batch of the step that launched it."""
    calls = ("cuda_runtime", "cuda_driver")
    launched = {e.launch: e.start_ns for e in events if e.category in calls}
    pieces: dict[tuple[str, str, int], list[_Event]] = {}
    for event in on_gpu:
        batch = _batch(launched.get(event.launch, event.start_ns), begins)
        over_bus = event.category == "gpu_memcpy" and "DtoD" not in event.name
        place = ("copy", "transfer") if over_bus else ("gpu", "compute")
        pieces.setdefault((*place, batch), []).append(event)
    for (lane, stage, batch), of_batch in pieces.items():
        yield from _joined(lane, stage, of_batch, batch, _KERNEL_GAP_NS)


def _cpu_spans(mine: Sequence[_Event], begins: Sequence[int]) -> Iterator[Span]:
    """Yield what the main thread computes: all that is named there but steps and waiting."""
    waiting = [(e.start_ns, e.end_ns) for e in mine if e.name.startswith(_NEXT)]
    starts = [start for start, _ in waiting]
    pieces: dict[int, list[_Event]] = {}
    for event in mine:
        last = bisect_right(starts, event.start_ns) - 1
        inside = last >= 0 and event.start_ns < waiting[last][1]
        named = event.category in ("cpu_op", "user_annotation")
        if named and not inside and not event.name.startswith(_STEP):
            pieces.setdefault(_batch(event.start_ns, begins), []).append(event)
    for batch, of_batch in pieces.items():
        yield from _joined("cpu", "compute", of_batch, batch, _CALL_GAP_NS)


def _joined(
    lane: str, stage: str, events: Iterable[_Event], batch: int, gap_ns: int
) -> Iterator[Span]:
    for start, end in union((e.start_ns, e.end_ns + gap_ns) for e in events):
        yield Span(lane, stage, start, end - gap_ns, batch)
