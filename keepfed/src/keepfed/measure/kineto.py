"""Read kernels and copies from the events of Kineto, which torch.profiler writes."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.measure.spans import Span, SpanLog, union

Event = Mapping[str, Any]  # in the Trace Event Format
_ON_GPU = ("kernel", "gpu_memset", "gpu_memcpy")  # categories of Kineto
_CALLS = ("cuda_runtime", "cuda_driver")
# The GPU needs this time to start the next kernel, so shorter gaps count as computing.
_GAP_NS = 10_000


def times_ns(event: Event) -> tuple[int, int]:
    """Return start and end of a complete event of a file, whose times are microseconds."""
    start_ns = round(event["ts"] * 1e3)
    return start_ns, start_ns + round(event.get("dur", 0) * 1e3)


def gpu_spans(events: Sequence[Event], begins_ns: Sequence[int]) -> Iterator[Span]:
    """Yield the kernels and copies of the GPU, joined if the gaps between them are short.

    They belong to the batch that launched them. Batch n begins at `begins_ns[n]`.
    """
    calls = (event for event in events if event.get("cat") in _CALLS)
    launched = {call.get("args", {}).get("correlation"): times_ns(call)[0] for call in calls}
    pieces: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for event in events:
        if event.get("cat") in _ON_GPU:
            over_bus = event["cat"] == "gpu_memcpy" and "DtoD" not in event["name"]
            lane, stage = ("copy", "transfer") if over_bus else ("gpu", "compute")
            start_ns, end_ns = times_ns(event)
            call_ns = launched.get(event.get("args", {}).get("correlation"), start_ns)
            piece = lane, stage, bisect_right(begins_ns, call_ns) - 1
            pieces.setdefault(piece, []).append((start_ns, end_ns + _GAP_NS))
    for (lane, stage, batch), work in pieces.items():
        for start_ns, end_ns in union(work):
            yield Span(lane, stage, start_ns, end_ns - _GAP_NS, batch)


def start_profiler() -> Any:
    """Return a running torch.profiler that records the work of CUDA devices."""
    import torch  # here, because a trace without kernels needs no torch

    there = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
    if torch.profiler.ProfilerActivity.CUDA not in there:
        raise KeepfedError("kernels=True needs a CUDA device. Call record() without it.")
    if getattr(torch.autograd, "_profiler_enabled", bool)():  # Kineto would cancel its profile
        raise KeepfedError("A profiler already runs. Call record() without kernels=True.")
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    profiler.start()
    return profiler


def add_kernels(trace: SpanLog, profiler: Any) -> None:
    """Stop `profiler`, and show its kernels and copies in the lanes "gpu" and "copy"."""
    import torch

    try:
        torch.cuda.synchronize()
        profiler.stop()
        with TemporaryDirectory() as folder:
            profiler.export_chrome_trace(str(path := Path(folder, "profile.json")))
            profile = json.loads(path.read_bytes())
    except Exception as error:  # do not replace an error of the loop
        trace.mention(f"no kernels, because torch.profiler failed ({type(error).__name__})")
        return
    # Times of the file are on the clock of the system, from an origin that the file contains.
    shift_ns = profile.get("baseTimeNanoseconds", 0) + trace.clock() - time.time_ns()
    waits = sorted((start, batch) for _, stage, start, _, batch in trace.rows if stage == "wait")
    batches = [*(batch for _, batch in waits), -1]  # the last one for work before the first batch
    begins_ns = [start - shift_ns for start, _ in waits]
    if spans := list(gpu_spans(profile["traceEvents"], begins_ns)):
        rest = [row for row in trace.rows if row[0] not in ("gpu", "copy")]
        trace.rows = rest + [
            (lane, stage, start + shift_ns, end + shift_ns, batches[number])
            for lane, stage, start, end, number in spans
        ]
        trace.steps_are = "kernels"
        trace.mention("kernels of torch.profiler")
