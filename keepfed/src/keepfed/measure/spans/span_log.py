"""Record the stages of a training loop as spans.

A `Span` records the lane, stage, start, end and batch of one interval. A `SpanLog` is a list of
spans with a ledger of the samples that were served. This module only records. `spans.summary`
computes, `measure.picture` draws, and `measure.trace` combines them.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from keepfed.measure.records import Fetch, Row, Span

STAGES = ("read", "decode", "transform", "collate", "transfer", "compute", "wait")
THREAD = "thread"  # lane of the threads other than the recording one
OTHERS = "other ranks"  # lane of the time in which a rank waits for the other ranks
AT_MOST = "computing: at most, the time between two batches"  # note if no step was marked

Clock = Callable[[], int]
SampleIds = str | Callable[[Any], Iterable[Hashable]]


class SpanLog:
    """The spans of one run, and the ledger of its samples."""

    def __init__(self, *, clock: Clock = time.perf_counter_ns, label: str = "", lane: str = "main"):
        """Start an empty trace.

        Stages of this thread are added to `lane`, and stages of other threads to "thread".
        """
        self.clock = clock
        self.label = label
        self.note = ""  # text on the picture, for example what is emulated or simulated
        self.lane = lane
        self.thread = threading.get_ident()
        self.batch = -1  # index of the current batch of the main process
        self.served = 0  # batches returned by `batches`
        self.samples = 0
        self.sample_ids: list[Hashable] | None = []  # None after a batch without IDs
        self.start_ns = self.end_ns = clock()
        self.origin_ns: int | None = None  # common origin of several ranks, None: the first span
        self.starts_midway = False  # recording began in a running loop, without its start-up
        self.steps_are = "marks"  # or "bounds" (at most that long) or "kernels" (many per step)
        # Use plain tuples, because the garbage collector stops tracking a tuple of strings and
        # numbers after one check. It would check every `Span` in every collection.
        self.rows: list[Row] = []
        self.fetches: list[Fetch] = []
        self._closing: list[Callable[[], None]] = []

    def add(self, span: Span) -> None:
        """Append one span."""
        self.rows.append(span[:])

    def mention(self, what: str) -> None:
        """Add `what` to the note, unless the note contains it already."""
        if what not in self.note:
            self.note = f"{self.note}, {what}" if self.note else what

    @property
    def spans(self) -> list[Span]:
        """All spans, sorted by start."""
        spans = map(Span._make, self.rows)
        return sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))

    @property
    def begins_ns(self) -> int:
        """Start of the first span, or of the first rank."""
        if self.origin_ns is not None:
            return self.origin_ns
        return min((start_ns for _, _, start_ns, _, _ in self.rows), default=self.start_ns)

    @property
    def last_ns(self) -> int:
        """End of the last span, or 0 if there are no spans."""
        return max((end_ns for _, _, _, end_ns, _ in self.rows), default=0)

    @property
    def lanes(self) -> list[str]:
        """Names of the lanes in drawing order: storage, workers, main, other ranks, copy, gpu."""
        return sorted({lane for lane, *_ in self.rows}, key=_lane_order)

    def serve(self, count: int, ids: Sequence[Hashable] | None) -> None:
        """Add a batch of `count` samples to the ledger, with `ids=None` if they are unknown."""
        self.samples += count
        if ids is None:
            self.sample_ids = None
        elif self.sample_ids is not None:
            self.sample_ids.extend(ids)

    def on_close(self, action: Callable[[], None]) -> None:
        """Call `action` once when the recording ends, e.g. to read the times of CUDA events."""
        self._closing.append(action)

    def close(self) -> None:
        """End the recording, and call the actions registered with `on_close`."""
        self.end_ns = self.clock()
        while self._closing:
            self._closing.pop(0)()


def _lane_order(lane: str) -> tuple[int, int, str]:
    rank = {"storage": 0, "worker": 1, "main": 3, OTHERS: 4, "copy": 5, "gpu": 6}
    kind, number = re.fullmatch(r"(.*?)\s*(\d*)", lane).groups()  # type: ignore[union-attr]
    return rank.get(kind, 2), int(number or 0), lane


_active: SpanLog | None = None


def current() -> SpanLog | None:
    """Return the trace that is recording in this process, or None if there is none."""
    return _active


def activate(trace: SpanLog | None) -> SpanLog | None:
    """Start recording to `trace` in this process, and return the previous trace."""
    global _active
    previous, _active = _active, trace
    return previous


# A forked worker must not continue to record to its copy of the parent's trace.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: activate(None))


class _RecordedStage:
    __slots__ = ("lane", "name", "start_ns", "trace")

    def __init__(self, trace: SpanLog, name: str, lane: str):
        self.trace, self.name, self.lane = trace, name, lane

    def __enter__(self) -> None:
        self.start_ns = self.trace.clock()

    def __exit__(self, *error: object) -> None:
        trace, lane = self.trace, self.lane
        batch = trace.batch if lane != THREAD else -1  # a thread runs ahead of the loop
        trace.rows.append((lane, self.name, self.start_ns, trace.clock(), batch))


_NO_STAGE = nullcontext()


def stage(name: str, lane: str | None = None) -> AbstractContextManager[None]:
    """Mark a block as one of `STAGES`. Without a recording, the cost is negligible.

    Raises:
        ValueError: If `name` is not one of `STAGES`. Only checked during a recording.
    """
    trace = _active
    if trace is None:
        return _NO_STAGE
    if name not in STAGES:
        raise ValueError(f"{name!r} is not a valid stage. Use one of: {', '.join(STAGES)}.")
    if lane is None:
        lane = trace.lane if trace.thread == threading.get_ident() else THREAD
    return _RecordedStage(trace, name, lane)
