"""Arrange the spans of a trace in lanes and rows, and tell how busy each stretch of a lane was.

Pictures are drawn and files for other tools are written from this arrangement.

Spans of one lane may overlap. A span inside one of another stage (a `read` inside the main
process's `wait`) is nested: drawn on top of it, smaller. Anything else that overlaps (two reads at
a time) gets a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from keepfed.measure.spans.span_log import STAGES, Span, SpanLog
from keepfed.measure.spans.summary import Interval, compute_spans, summarise, union

MAX_ROWS = 12  # more spans than this at a time share the last row


@dataclass(frozen=True)
class PlacedSpan:
    """A span and its place in the lane."""

    span: Span
    row: int = 0
    depth: int = 0  # 1: inside another span
    under: str = ""  # the stage of that other span


@dataclass
class Lane:
    """One lane of the picture."""

    name: str
    placed: list[PlacedSpan] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows its overlapping spans need."""
        return 1 + max((p.row for p in self.placed), default=0)

    def busy_ns(self) -> int:
        """Return how long the lane did anything but wait."""
        work = union(
            (p.span.start_ns, p.span.end_ns) for p in self.placed if p.span.stage != "wait"
        )
        return sum(end - start for start, end in work)


def lanes(trace: SpanLog) -> list[Lane]:
    """Return the lanes in drawing order, each with its spans placed; an unused lane is left out."""
    by_lane: dict[str, list[Span]] = {name: [] for name in trace.lanes}
    for span in trace.spans:
        by_lane[span.lane].append(span)
    return [Lane(name, place(spans)) for name, spans in by_lane.items()]


def place(spans: Iterable[Span]) -> list[PlacedSpan]:
    """Give each span, sorted by start, a row and a depth."""
    rows: list[list[Span]] = []  # by row the spans that are open, outermost first
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
    """Drop what has ended from `around`, then tell whether `span` nests in what is left."""
    while around and around[-1].end_ns <= span.start_ns:
        around.pop()
    inside = not around or around[-1].end_ns >= span.end_ns
    return inside and all(span.stage != outer.stage for outer in around)


def reach(trace: SpanLog) -> Interval:
    """Return when the trace begins, and the last end of all spans, in ns."""
    spans = trace.spans
    if not spans:
        return trace.start_ns, max(trace.end_ns, trace.start_ns + 1)
    return trace.begins_ns, max(span.end_ns for span in spans)


def busy_share(trace: SpanLog, lane: Lane) -> float:
    """Return the share of the run in which `lane` did anything but wait; of the GPU, computed."""
    if lane.name == "gpu":
        return summarise(trace).utilisation
    start, end = reach(trace)
    return lane.busy_ns() / (end - start)


def idle_gaps(trace: SpanLog) -> list[Interval]:
    """Return when the GPU did nothing, from the first span to the end of the last step, in ns."""
    steps = union((s.start_ns, s.end_ns) for s in compute_spans(trace.spans))
    ends = [reach(trace)[0], *(end for _, end in steps)]
    gaps = zip(ends, (start for start, _ in steps), strict=False)
    return [(end, start) for end, start in gaps if start > end]


def busy_shares(lane: Lane, window: Interval, columns: int) -> NDArray[np.float64]:
    """Return the share of each of `columns` equal parts of `window` that each stage took.

    Shape (rows, stages, columns). A nested span's time is taken from the span around it.
    """
    edges = np.linspace(*window, columns + 1)
    shares = np.zeros((lane.rows, len(STAGES), columns))
    for row in range(lane.rows):
        here = [p for p in lane.placed if p.row == row]
        for number, stage in enumerate(STAGES):
            own = _covered([p.span for p in here if p.span.stage == stage], edges)
            inner = _covered([p.span for p in here if p.under == stage], edges)
            shares[row, number] = (own - inner) / np.diff(edges)
    return shares.clip(0, 1)


def _covered(spans: Sequence[Span], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much time of `spans` lies between each two neighbouring `edges`."""
    times = np.array([[s.start_ns for s in spans], [s.end_ns for s in spans]], float).ravel()
    order = times.argsort()
    running = np.repeat([1, -1], len(spans))[order].cumsum()  # spans open after each of `times`
    done = np.append(0, (running[:-1] * np.diff(times[order])).cumsum())
    return np.diff(np.interp(edges, times[order], done)) if spans else np.zeros(len(edges) - 1)
