"""Handmade traces with known results."""

from dataclasses import fields, replace
from typing import Any

from keepfed.measure import advice
from keepfed.measure.advice import Measurements
from keepfed.measure.spans import Span
from keepfed.measure.trace import Trace

NO_GROWTH = advice.WorkerMemory(own_bytes=0.0, grown_bytes=0.0, grown_late_bytes=0.0, watched=0)
MS = 1_000_000


def span(lane: str, stage: str, start_ms: float, end_ms: float, batch: int = -1) -> Span:
    return Span(lane, stage, round(start_ms * MS), round(end_ms * MS), batch)


def trace_of(*spans: Span, label: str = "", note: str = "") -> Trace:
    trace = Trace(clock=lambda: 0, label=label)
    trace.note = note
    for one in spans:
        trace.add(one)
    trace.end_ns = max((one.end_ns for one in spans), default=0)
    return trace


def naive(steps: int = 3, *, load_ms: int = 30, step_ms: int = 10, label: str = "naive") -> Trace:
    """Return a loop whose GPU is idle for load / (load + step) of the time."""
    spans = []
    for batch in range(steps):
        start = batch * (load_ms + step_ms)
        loaded = start + load_ms
        spans += [
            span("main", "wait", start, loaded, batch),
            span("main", "read", start, start + load_ms * 0.8, batch),
            span("main", "decode", start + load_ms * 0.8, loaded, batch),
            span("gpu", "compute", loaded, loaded + step_ms, batch),
        ]
    return trace_of(*spans, label=label, note="made by hand")


HUNGRY = Measurements(  # two workers whose fetches compute, and a step that waits for them
    paces=advice.Paces(
        loader_s=0.05, step_s=0.02, together_s=0.051, wait_s=0.03, waited_share=1.0, epoch=1000
    ),
    step=advice.StepParts(compute_s=0.02),
    setting=advice.Setting(workers=2, cores=4, worker_cores=4),
    fetching=advice.Fetching(fetch_s=0.1, computing_s=0.095, collate_s=0.004),
    moving=advice.Moving(sending_s=0.002),
    memory=NO_GROWTH,
)


def hungry(**figures: Any) -> Measurements:
    return changed(HUNGRY, **figures)


def changed(m: Measurements, **figures: Any) -> Measurements:
    """Return `m` with new values for figures in any of its parts."""
    parts = {"lines": figures.pop("lines", m.lines)}
    for part in fields(m):
        own = getattr(m, part.name)
        if not hasattr(own, "__dataclass_fields__"):
            continue
        new = {f.name: figures.pop(f.name) for f in fields(own) if f.name in figures}
        parts[part.name] = replace(own, **new)
    assert not figures
    return Measurements(**parts)


def figure(m: Measurements, name: str) -> Any:
    parts = [m, *(getattr(m, part.name) for part in fields(m))]
    return next(getattr(part, name) for part in parts if hasattr(part, name))
