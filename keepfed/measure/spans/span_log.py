"""Write down what every part of a training loop does, and when.

A `Span` says: on this lane, this stage ran from here to there for that batch. A `SpanLog` is a list
of spans with a ledger of the samples that were served. Recording is all that happens here:
`spans.summary` computes, `measure.picture` draws, and `measure.trace` puts them together.
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
THREAD = "thread"  # lane of what a thread does beside the one that records
OTHERS = "other ranks"  # lane of the time in which a rank waits for them to meet it

Clock = Callable[[], int]
SampleIds = str | Callable[[Any], Iterable[Hashable]]


class SpanLog:
    """The spans of one run and the ledger of samples it served."""

    def __init__(self, *, clock: Clock = time.perf_counter_ns, label: str = "", lane: str = "main"):
        """Start an empty trace; a `stage` is written to `lane`, in other threads to "thread"."""
        self.clock = clock
        self.label = label
        self.note = ""  # drawn on the picture: what is emulated, simulated, recorded elsewhere
        self.lane = lane
        self.thread = threading.get_ident()
        self.batch = -1  # number of the batch the main process works on now
        self.served = 0  # batches handed out by `batches`
        self.samples = 0
        self.sample_ids: list[Hashable] | None = []  # None once a batch came without ids
        self.start_ns = self.end_ns = clock()
        self.origin_ns: int | None = None  # of several ranks together; None: at the first span
        self.starts_midway = False  # a loop that runs already: its first wait is no start-up
        # Plain tuples: the garbage collector lets go of them once it has seen that they hold
        # nothing but words and numbers, and looks at every Span again each time.
        self.rows: list[Row] = []
        self.fetches: list[Fetch] = []  # what each batch cost the process that made it
        self._closing: list[Callable[[], None]] = []

    def add(self, span: Span) -> None:
        """Append one span."""
        self.rows.append(span[:])

    def mention(self, what: str) -> None:
        """Add to the note, once, what in this run is emulated or comes from elsewhere."""
        if what not in self.note:
            self.note = f"{self.note}, {what}" if self.note else what

    @property
    def spans(self) -> list[Span]:
        """All spans, sorted by start."""
        spans = map(Span._make, self.rows)
        return sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))

    @property
    def begins_ns(self) -> int:
        """When it begins: with the first span, or with the first of all ranks."""
        if self.origin_ns is not None:
            return self.origin_ns
        return min((start_ns for _, _, start_ns, _, _ in self.rows), default=self.start_ns)

    @property
    def last_ns(self) -> int:
        """When the last of its spans ends; 0 if there is none."""
        return max((end_ns for _, _, _, end_ns, _ in self.rows), default=0)

    @property
    def lanes(self) -> list[str]:
        """Names of the lanes in drawing order: storage, workers, main, other ranks, copy, gpu."""
        return sorted({lane for lane, *_ in self.rows}, key=_lane_order)

    @property
    def count(self) -> int:
        """How many spans there are."""
        return len(self.rows)

    def drain(self) -> list[Row]:
        """Return what was recorded so far and forget it (a worker sends it with its batch)."""
        rows, self.rows = self.rows, []
        return rows

    def serve(self, count: int, ids: Sequence[Hashable] | None) -> None:
        """Enter one batch of `count` samples in the ledger; `ids=None` if they are not known."""
        self.samples += count
        if ids is None:
            self.sample_ids = None
        elif self.sample_ids is not None:
            self.sample_ids.extend(ids)

    def on_close(self, action: Callable[[], None]) -> None:
        """Run `action` once when recording ends, e.g. to read the times of CUDA events."""
        self._closing.append(action)

    def close(self) -> None:
        """End the recording: note the time, then run what was registered with `on_close`."""
        self.end_ns = self.clock()
        while self._closing:
            self._closing.pop(0)()


def _lane_order(lane: str) -> tuple[int, int, str]:
    rank = {"storage": 0, "worker": 1, "main": 3, OTHERS: 4, "copy": 5, "gpu": 6}
    kind, number = re.fullmatch(r"(.*?)\s*(\d*)", lane).groups()  # type: ignore[union-attr]
    return rank.get(kind, 2), int(number or 0), lane


_active: SpanLog | None = None


def current() -> SpanLog | None:
    """Return the trace that is recording in this process, or None."""
    return _active


def activate(trace: SpanLog | None) -> SpanLog | None:
    """Make `trace` the recording one in this process and return the one it replaces."""
    global _active
    previous, _active = _active, trace
    return previous


# A forked worker must not go on filling its copy of the parent's trace.
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
        batch = trace.batch if lane != THREAD else -1  # a thread is ahead of the loop
        trace.rows.append((lane, self.name, self.start_ns, trace.clock(), batch))


_NO_STAGE = nullcontext()


def stage(name: str, lane: str | None = None) -> AbstractContextManager[None]:
    """Mark a block as one of `STAGES`; costs next to nothing while nobody is recording.

    Raises:
        ValueError: while recording, if `name` is not one of `STAGES`.
    """
    trace = _active
    if trace is None:
        return _NO_STAGE
    if name not in STAGES:
        raise ValueError(f"{name!r} is no stage; use one of: {', '.join(STAGES)}.")
    if lane is None:
        lane = trace.lane if trace.thread == threading.get_ident() else THREAD
    return _RecordedStage(trace, name, lane)
