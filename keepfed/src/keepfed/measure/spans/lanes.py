"""Arrange the spans of a trace in lanes and rows, and compute how busy each part of a lane is.

Spans of one lane may overlap. A span inside a span of another stage, such as a `read` inside the
`wait` of the main process, is nested. Pictures draw it smaller, on top of the other span. Other
overlapping spans, such as two reads at a time, get separate rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from keepfed.measure.spans.span_log import STAGES, Span, SpanLog
from keepfed.measure.spans.summary import Interval, compute_spans, summarize, union

MAX_ROWS = 12  # maximum rows of a lane, where further overlapping spans share the last row


@dataclass(frozen=True)
class PlacedSpan:
    """A span and its position in the lane."""

    span: Span
    row: int = 0
    depth: int = 0  # nesting depth, 1 for a span inside one other span
    under: str = ""  # stage of the enclosing span


@dataclass
class Lane:
    """One lane of the picture."""

    name: str
    placed: list[PlacedSpan] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of rows for overlapping spans."""
        return 1 + max((p.row for p in self.placed), default=0)

    def busy_ns(self) -> int:
        """Return the time in which the lane worked instead of waiting, in ns."""
        work = union(
            (p.span.start_ns, p.span.end_ns) for p in self.placed if p.span.stage != "wait"
        )
        return sum(end - start for start, end in work)


def lanes(trace: SpanLog) -> list[Lane]:
    """Return the lanes that have spans, in drawing order."""
    by_lane: dict[str, list[Span]] = {name: [] for name in trace.lanes}
    for span in trace.spans:
        by_lane[span.lane].append(span)
    return [Lane(name, place(spans)) for name, spans in by_lane.items()]


def place(spans: Iterable[Span]) -> list[PlacedSpan]:
    """Assign a row and a depth to each span. `spans` must be sorted by start."""
    rows: list[list[Span]] = []  # open spans of each row, outermost first
    placed = []
    for span in spans:
        row = next((n for n, around in enumerate(rows) if _fits(around, span)), len(rows))
        row = min(row, MAX_ROWS - 1)
        if row == len(rows):
            rows.append([])
        around = rows[row]
        under = around[-1].stage if around else ""
        placed.append(PlacedSpan(span, row, len(around), under))
        around.append(span)
    return placed


def _fits(around: list[Span], span: Span) -> bool:
    """Remove ended spans from `around`, and return whether `span` nests in the others."""
    while around and around[-1].end_ns <= span.start_ns:
        around.pop()
    inside = not around or around[-1].end_ns >= span.end_ns
    return inside and all(span.stage != outer.stage for outer in around)


def reach(trace: SpanLog) -> Interval:
    """Return the start of the trace and the end of its last span, in ns."""
    return trace.begins_ns, trace.last_ns or max(trace.end_ns, trace.start_ns + 1)


def busy_share(trace: SpanLog, lane: Lane) -> float:
    """Return the share of the run in which `lane` worked. For the GPU, only computing counts."""
    if lane.name == "gpu":
        return summarize(trace).utilization
    start, end = reach(trace)
    return lane.busy_ns() / (end - start)


def idle_gaps(trace: SpanLog) -> list[Interval]:
    """Return the idle intervals of the GPU from the first span to the last step, in ns."""
    steps = union((s.start_ns, s.end_ns) for s in compute_spans(trace.spans))
    ends = [reach(trace)[0], *(end for _, end in steps)]
    gaps = zip(ends, (start for start, _ in steps), strict=False)
    return [(end, start) for end, start in gaps if start > end]


def busy_shares(placed: Sequence[PlacedSpan], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of time of each stage between each pair of neighboring `edges`, in ns.

    The time of a nested span is subtracted from the span around it.

    Returns:
        Array of shares. Shape (stages, edges - 1).
    """
    times = [
        _covered([p.span for p in placed if p.span.stage == stage], edges)
        - _covered([p.span for p in placed if p.under == stage], edges)
        for stage in STAGES
    ]
    return (np.array(times) / np.diff(edges)).clip(min=0)


def _covered(spans: Sequence[Span], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time of `spans` between each pair of neighboring `edges`."""
    times = np.array([[s.start_ns for s in spans], [s.end_ns for s in spans]], float).ravel()
    order = times.argsort()
    running = np.repeat([1, -1], len(spans))[order].cumsum()  # open spans after each of `times`
    done = np.append(0, (running[:-1] * np.diff(times[order])).cumsum())
    return np.diff(np.interp(edges, times[order], done)) if spans else np.zeros(len(edges) - 1)
