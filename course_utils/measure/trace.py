"""Record what every part of a training loop does, and when.

    with record() as trace:
        for batch in trace.batches(loader):
            with stage("compute"):
                train(batch)
    print(trace.summary())

A `Span` says: on this lane, this stage ran from here to there for that batch. A `Trace` is a list
of spans with a ledger of the samples that were served. Recording is all that happens here:
`summary` computes, `timeline` draws.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_utils.measure.summary import Summary
    from course_utils.measure.timeline import Timeline

STAGES = ("read", "decode", "transform", "collate", "transfer", "compute", "wait")
THREAD = "thread"  # lane of what a thread does beside the one that records

Clock = Callable[[], int]
SampleIds = str | Callable[[Any], Iterable[Hashable]]


class Span(NamedTuple):
    """One stretch of work (or waiting) of one lane.

    Times are `time.perf_counter_ns()` nanoseconds: one clock for all processes of a machine.
    """

    lane: str
    stage: str
    start_ns: int
    end_ns: int
    batch: int = -1  # -1: belongs to no batch

    @property
    def duration_ns(self) -> int:
        """Length of the span in nanoseconds."""
        return self.end_ns - self.start_ns


class Trace:
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
        self._spans: list[Span] = []
        self._closing: list[Callable[[], None]] = []

    def add(self, span: Span) -> None:
        """Append one span."""
        self._spans.append(span)

    def mention(self, what: str) -> None:
        """Add to the note, once, what in this run is emulated or comes from elsewhere."""
        if what not in self.note:
            self.note = f"{self.note}, {what}" if self.note else what

    @property
    def spans(self) -> list[Span]:
        """All spans, sorted by start."""
        return sorted(self._spans, key=lambda span: (span.start_ns, -span.end_ns))

    @property
    def lanes(self) -> list[str]:
        """Names of the lanes in drawing order: storage, workers, main, copy, gpu."""
        return sorted({span.lane for span in self._spans}, key=_lane_order)

    def drain(self) -> list[Span]:
        """Return the spans recorded so far and forget them (a worker sends them with its batch)."""
        spans, self._spans = self._spans, []
        return spans

    def batches(self, loader: Iterable[Any], ids: SampleIds | None = None) -> Iterator[Any]:
        """Iterate over `loader`, recording the wait for each batch and what the workers did for it.

        Args:
            loader: a `DataLoader` of any kind (it is left as it was) or any other iterable.
                Persistent workers that ran before they were first recorded send no spans.
            ids: how to read the sample ids from a batch: a key, or a function of the batch. Needed
                for the ledger of an `IterableDataset`; a map-style dataset has its indices.
        """
        from course_utils.measure.traced_loader import traced_batches

        return traced_batches(self, loader, ids)

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

    def summary(self) -> Summary:
        """Return utilisation, idle share, AU, stall per stage and the ledger."""
        from course_utils.measure.summary import summarise

        return summarise(self)

    def timeline(self) -> Timeline:
        """Return the interactive picture."""
        from course_utils.measure.timeline import Timeline

        return Timeline(self)

    def figure(self) -> Figure:
        """Return the same picture for print."""
        from course_utils.measure.figure import draw

        return draw(self)

    def save_chrome(self, path: str | Path) -> Path:
        """Write Chrome-trace JSON, which Perfetto opens."""
        from course_utils.measure.export import save_chrome

        return save_chrome(self, path)

    def __repr__(self) -> str:
        """Name the run and count its spans."""
        label = f"{self.label!r}, " if self.label else ""
        return f"Trace({label}{len(self._spans)} spans, {self.served} batches)"


def _lane_order(lane: str) -> tuple[int, int, str]:
    rank = {"storage": 0, "worker": 1, "main": 3, "copy": 4, "gpu": 5}
    kind, number = re.fullmatch(r"(.*?)\s*(\d*)", lane).groups()  # type: ignore[union-attr]
    return rank.get(kind, 2), int(number or 0), lane


_active: Trace | None = None


def current() -> Trace | None:
    """Return the trace that is recording in this process, or None."""
    return _active


def activate(trace: Trace | None) -> Trace | None:
    """Make `trace` the recording one in this process and return the one it replaces."""
    global _active
    previous, _active = _active, trace
    return previous


# A forked worker must not go on filling its copy of the parent's trace.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: activate(None))


@contextmanager
def record(clock: Clock = time.perf_counter_ns, label: str = "") -> Iterator[Trace]:
    """Record everything inside the `with` block; the trace stays readable afterwards."""
    trace = Trace(clock=clock, label=label)
    previous = activate(trace)
    try:
        yield trace
    finally:
        activate(previous)
        trace.close()


class Stage(Protocol):
    """What `stage` returns: something to be used in a `with` statement."""

    def __enter__(self) -> None:
        """Start the stage."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the stage."""


class _NoStage:
    __slots__ = ()

    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


class _RecordedStage:
    __slots__ = ("lane", "name", "start_ns", "trace")

    def __init__(self, trace: Trace, name: str, lane: str):
        self.trace, self.name, self.lane = trace, name, lane

    def __enter__(self) -> None:
        self.start_ns = self.trace.clock()

    def __exit__(self, *error: object) -> None:
        trace, lane = self.trace, self.lane
        batch = trace.batch if lane != THREAD else -1  # a thread is ahead of the loop
        trace._spans.append(Span(lane, self.name, self.start_ns, trace.clock(), batch))


_NO_STAGE = _NoStage()


def stage(name: str, lane: str | None = None) -> Stage:
    """Mark a block as one of `STAGES`; costs next to nothing while nobody is recording.

    Raises:
        ValueError: while recording, if `name` is not one of `STAGES`.
    """
    trace = _active
    if trace is None:
        return _NO_STAGE
    if name not in STAGES:
        raise ValueError(f"{name!r} is no stage; use one of: {', '.join(STAGES)}.")
    own_thread = trace.thread == threading.get_ident()
    return _RecordedStage(trace, name, lane or (trace.lane if own_thread else THREAD))
