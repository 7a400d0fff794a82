"""Read a trace of torch.profiler, so that the profile of any training loop can be drawn.

profiler.export_chrome_trace("profile.json.gz")
load_profile("profile.json.gz").timeline()
"""

from __future__ import annotations

from pathlib import Path

from keepfed.measure.exchange.chrome import trace_of
from keepfed.measure.kineto import gpu_spans, times_ns
from keepfed.measure.spans import AT_MOST, Span
from keepfed.measure.trace import Trace
from keepfed.reading import read_json, reading

_NEXT = "enumerate(DataLoader)#"  # followed by the class of the iterator
_STEP = "ProfilerStep#"  # followed by its number
_HOST = ("cpu_op", "user_annotation")


def load_profile(path: str | Path) -> Trace:
    """Read a Chrome trace of torch.profiler (.json or .json.gz). Times begin at 0.

    The lanes are "gpu" (compute: kernels), "copy" (transfer: copies to and from the device) and
    "main" (wait: for the next batch). If nothing ran on a GPU, the main process computes at most
    from a batch to the next request. The file does not contain worker processes.

    Raises:
        ReadError: If the file contains neither work of a GPU nor loops over a DataLoader.
    """
    path = Path(path)
    with reading(path, step="Write one with `profiler.export_chrome_trace(path)`"):
        events = [e for e in read_json(path)["traceEvents"] if e.get("ph") == "X"]
        host = [(times_ns(e), e["name"]) for e in events if e.get("cat") in _HOST]
        waits = sorted(times for times, name in host if name.startswith(_NEXT))
        steps = sorted((times, name) for times, name in host if name.startswith(_STEP))
        # A step begins with the call for its batch, or without DataLoader with the profiler's mark.
        begins = [start for start, _ in waits or (times for times, _ in steps)]
        on_gpu = list(gpu_spans(events, begins))
        if not on_gpu and not waits:
            raise ValueError("it has no profile of a GPU or of a DataLoader")
    spans = [Span("main", "wait", *wait, number) for number, wait in enumerate(waits)]
    if not on_gpu:
        ends = [*begins[1:], max(end for (_, end), _ in host)]
        body = zip((got for _, got in waits), ends, strict=True)
        spans += [Span("main", "compute", *part, number) for number, part in enumerate(body)]
    trace = trace_of(
        [*spans, *on_gpu],
        label=path.name.split(".")[0],
        note=f"recorded by torch.profiler, without workers{'' if on_gpu else f', {AT_MOST}'}",
        batches=len(begins),
    )
    trace.steps_are = "kernels" if on_gpu else "bounds"
    # The schedule of the profiler may skip the first steps.
    trace.starts_midway = bool(steps) and not steps[0][1].endswith("#0")
    return trace
