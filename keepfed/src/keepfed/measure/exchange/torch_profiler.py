"""Read a trace of torch.profiler, so that the profile of any training loop can be drawn.

    profiler.export_chrome_trace("profile.json.gz")
    load_profile("profile.json.gz").timeline()

Kineto writes the file. It defines the categories "kernel", "gpu_memcpy" and "gpu_memset" on the
GPU, and "cpu_op" and "user_annotation" on the host.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keepfed.measure.exchange.chrome import Event, content_of, event_of, trace_of
from keepfed.measure.spans import Span, union
from keepfed.measure.trace import Trace

_NEXT = "enumerate(DataLoader)#"  # followed by the class of the iterator
_STEP = "ProfilerStep"
_GPU = ("kernel", "gpu_memset", "gpu_memcpy")
_HOST = ("cpu_op", "user_annotation")
_CALLS = ("cuda_runtime", "cuda_driver")
_Work = tuple[str, str, int, int, Event]  # lane, stage, gap, start of the call and event
# Events with shorter gaps between them are drawn and counted as one span.
_KERNEL_GAP_NS = 10_000  # time in which the GPU starts the next kernel
_CALL_GAP_NS = 100_000  # time in which Python starts the next operation


def load_profile(path: str | Path) -> Trace:
    """Read a Chrome trace of torch.profiler (.json or .json.gz). Times begin at 0.

    The lanes are "gpu" (compute: kernels), "copy" (transfer: copies to and from the device), "main"
    (wait: for the next batch) and, if nothing ran on a GPU, "cpu" (compute: the main thread). The
    file does not contain worker processes, and the note of the trace mentions this.

    Raises:
        ValueError: If the file does not contain a profile.
    """
    path = Path(path)
    try:
        records = json.loads(content_of(path))["traceEvents"]
        events = [event_of(r) for r in records if r.get("ph") == "X" and "cat" in r]
    except (AttributeError, KeyError, TypeError, ValueError):
        events = []
    if not any(e.category in (*_GPU, *_HOST) for e in events):
        raise ValueError(
            f"{path} does not contain a profile. Write one with "
            "`profiler.export_chrome_trace(path)`."
        )
    main = _main_thread(events)
    mine = [e for e in events if (e.process, e.thread) == main]
    waits = [e for e in mine if e.name.startswith(_NEXT)]
    # A step begins with the call for its batch, or, without a DataLoader, with the profiler's mark.
    begins = sorted(e.start_ns for e in waits or mine if e.name.startswith((_NEXT, _STEP)))
    on_gpu = [e for e in events if e.category in _GPU]
    work = _gpu_work(events, on_gpu) if on_gpu else _cpu_work(mine, waits)
    spans = [Span("main", "wait", e.start_ns, e.end_ns, _batch(e.start_ns, begins)) for e in waits]
    note = "recorded by torch.profiler, without workers"
    trace = trace_of(
        [*spans, *_joined(work, begins)],
        label=path.name.split(".")[0],
        note=note if on_gpu else f"{note}, no GPU: cpu is the main thread",
        batches=len(begins),
    )
    steps = [int(e.name.partition("#")[2]) for e in mine if e.name.startswith(f"{_STEP}#")]
    trace.starts_midway = min(steps, default=0) > 0  # the schedule skipped the first steps
    return trace


def _main_thread(events: Sequence[Event]) -> tuple[Any, Any]:
    """Return the process and thread of the loop.

    It is the thread with the steps and batches, or else the one with the most operations.
    """
    host = [e for e in events if e.category in _HOST]
    marked = [e for e in host if e.name.startswith((_NEXT, _STEP))]
    counted = Counter((e.process, e.thread) for e in marked or host)
    return counted.most_common(1)[0][0] if counted else (None, None)


def _batch(moment: int, begins: Sequence[int]) -> int:
    return bisect_right(begins, moment) - 1


def _gpu_work(events: Iterable[Event], on_gpu: Sequence[Event]) -> Iterator[_Work]:
    """Yield kernels and copies, which belong to the step that launched them."""
    launched = {e.args.get("correlation"): e.start_ns for e in events if e.category in _CALLS}
    for event in on_gpu:
        over_bus = event.category == "gpu_memcpy" and "DtoD" not in event.name
        lane, stage = ("copy", "transfer") if over_bus else ("gpu", "compute")
        call_ns = launched.get(event.args.get("correlation"), event.start_ns)
        yield lane, stage, _KERNEL_GAP_NS, call_ns, event


def _cpu_work(mine: Iterable[Event], waits: Sequence[Event]) -> Iterator[_Work]:
    """Yield the computations of the main thread: all its named events except steps and waits."""
    waits = sorted(waits, key=lambda e: e.start_ns)
    for event in mine:
        last = bisect_right(waits, event.start_ns, key=lambda e: e.start_ns) - 1
        inside = last >= 0 and event.start_ns < waits[last].end_ns
        if event.category in _HOST and not inside and not event.name.startswith(_STEP):
            yield "cpu", "compute", _CALL_GAP_NS, event.start_ns, event


def _joined(work: Iterable[_Work], begins: Sequence[int]) -> Iterator[Span]:
    """Yield events of the same lane, stage and batch with short gaps between them as one span."""
    pieces: dict[tuple[str, str, int, int], list[Event]] = {}
    for lane, stage, gap_ns, begun_ns, event in work:
        pieces.setdefault((lane, stage, gap_ns, _batch(begun_ns, begins)), []).append(event)
    for (lane, stage, gap_ns, batch), events in pieces.items():
        for start, end in union((e.start_ns, e.end_ns + gap_ns) for e in events):
            yield Span(lane, stage, start, end - gap_ns, batch)
