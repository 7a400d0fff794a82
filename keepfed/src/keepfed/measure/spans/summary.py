"""Compute the utilization of the GPU from a trace, and the stages it waited for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from keepfed.formatting import percent, plural
from keepfed.measure.spans.span_log import OTHERS, Span, SpanLog

Interval = tuple[int, int]
LOADING = ("read", "decode", "transform", "collate", "transfer")
_STALL_LABELS = {
    "wait": "the next batch",
    "transfer": "copies",
    "others": "the other ranks",
    "host": "the program itself",
}
MARK = 'Loop directly over trace.batches(), or mark the step: with stage("compute"): train(batch)'


@dataclass(frozen=True)
class Summary:
    """The figures of one run. Shares refer to the time until the end of the last step."""

    utilization: float  # share of time in which a step computed, including the start-up
    idle: float  # 1 - utilization
    au: float  # accelerator utilization of MLPerf Storage, which excludes the first step
    total_s: float
    start_up_s: float  # time until the first step starts
    steps: int
    stall: Mapping[str, float]  # share in which the GPU waited for a stage, "others" or "host"
    samples: int
    distinct: int | None  # number of distinct samples, None if the sample IDs are unknown
    who: str  # unit that computes the steps: "GPU", or "main process" in a trace without a GPU
    at_most: bool  # steps were not marked, so `utilization` and `au` are upper bounds

    @property
    def complete(self) -> bool | None:
        """Whether no sample was served twice, or None if this is unknown."""
        return None if self.distinct is None else self.distinct == self.samples

    @property
    def samples_per_s(self) -> float:
        """Samples served per second, start-up included."""
        return self.samples / self.total_s if self.total_s else 0.0

    @property
    def shares(self) -> tuple[str, str, str]:
        """Busy share, idle share and AU in words."""
        if not self.at_most:
            return percent(self.utilization), percent(self.idle), percent(self.au)
        # Round up, because the bound 0.998 is not "at most > 99 %".
        busy, au = (ceil(round(100 * share, 6)) for share in (self.utilization, self.au))
        return f"at most {busy} %", f"at least {100 - busy} %", f"at most {au} %"

    def __str__(self) -> str:
        """Return the summary as text with short lines."""
        if not self.steps:
            return f"No step was recorded in {self.total_s:.2f} s. {MARK}"
        waits = [
            f"{stall_label(stage)} {percent(share)}"
            for stage, share in self.stall.items()
            if share >= 0.005
        ]
        waited = f",\nwaiting mostly for {', '.join(waits[:3])}" if waits else ""
        busy, idle, au = self.shares
        return (
            f"The {self.who} computed {busy} of {self.total_s:.2f} s and was idle {idle}{waited}.\n"
            f"AU {au} over {plural(self.steps, 'step')}. "
            f"The first one started after {self.start_up_s:.2f} s.\n{self._ledger()}"
        )

    def _ledger(self) -> str:
        served = f"{self.samples:,} samples served"
        if self.distinct is None:
            return f"{served}. Pass ids= to trace.batches to check that they are distinct."
        if self.complete:
            return f"{served}, all distinct."
        return f"{served}, only {self.distinct:,} distinct, so any speed-up is void."


def stall_label(key: str) -> str:
    """Return the text for `key`, one of the keys of `Summary.stall`."""
    return _STALL_LABELS.get(key, key)


def summarize(trace: SpanLog) -> Summary:
    """Return the figures of `trace`."""
    spans = trace.spans
    steps = compute_spans(spans)
    busy = union((s.start_ns, s.end_ns) for s in steps)
    start = trace.begins_ns
    end = max((s.end_ns for s in steps), default=trace.end_ns)
    total = max(end - start, 1)
    utilization = _length(busy) / total
    ids = trace.sample_ids
    return Summary(
        utilization=utilization,
        idle=1 - utilization,
        au=_au(steps, end),
        total_s=total / 1e9,
        start_up_s=(steps[0].start_ns - start) / 1e9 if steps and not trace.starts_midway else 0.0,
        steps=(trace.steps_are == "kernels" and trace.served) or len(steps),
        stall=_stall(spans, steps, start, total),
        samples=trace.samples,
        distinct=None if ids is None else len(set(ids)),
        who=compute_unit(steps),
        at_most=trace.steps_are == "bounds",
    )


def compute_spans(spans: Sequence[Span]) -> list[Span]:
    """Return the steps in order: compute spans of the GPU, or of all lanes without a GPU."""
    steps = [s for s in spans if s.stage == "compute"]
    return [s for s in steps if s.lane == "gpu"] or steps


def compute_unit(steps: Sequence[Span]) -> str:
    """Return which unit computes `steps`: "GPU" (also without steps) or "main process"."""
    return "GPU" if not steps or steps[0].lane == "gpu" else "main process"


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping intervals into disjoint ones, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def _au(steps: Sequence[Span], end: int) -> float:
    if len(steps) < 2:
        return 0.0
    start = steps[0].end_ns
    busy = _length(union((max(s.start_ns, start), s.end_ns) for s in steps[1:]))
    return busy / max(end - start, 1)


def _stall(
    spans: Sequence[Span], steps: Sequence[Span], start: int, total: int
) -> dict[str, float]:
    """Divide the idle time of the GPU among the stages of the batch it waited for.

    The time in which this batch was being loaded is divided in proportion to the duration of each
    loading stage, because shortening any stage by the same time helps equally.

    The time in which the loop waits for other ranks counts as "others", even if batches are loaded
    in this time. The rest of a gap counts as copying if a copy of any batch runs, and otherwise as
    "wait" if the loop waits for a batch. In the remaining time, the "host" ran the program between
    two steps.
    """
    making: dict[int, list[Span]] = {}
    for span in spans:
        if span.stage in LOADING:
            making.setdefault(span.batch, []).append(span)
    waits = [span for span in spans if span.stage == "wait" and span.lane != OTHERS]
    met = union((s.start_ns, s.end_ns) for s in spans if s.lane == OTHERS)
    copies = union((s.start_ns, s.end_ns) for s in spans if s.stage == "transfer")
    # If the loop did not record its waits, all unexplained time counts as waiting.
    waiting = union((w.start_ns, w.end_ns) for w in waits) or [(start, start + total)]
    stall = dict.fromkeys((*LOADING, "wait", "others", "host"), 0.0)
    first = Span("gpu", "compute", start, start)
    for before, step in pairwise([first, *steps]):
        pause = before.end_ns, max(step.start_ns, before.end_ns)
        batches = {step.batch, *_waited_for(pause, waits)}
        work = [span for batch in batches for span in making.get(batch, ())]
        loading = [span for span in work if span.stage != "transfer"]
        whole = sum(span.duration_ns for span in loading)
        meetings = near(pause, met)
        stall["others"] += _covered(pause, meetings)
        for gap in outside(pause, meetings):
            lasted = _within(gap, work)
            known = [*((span.start_ns, span.end_ns) for span in work), *near(gap, copies)]
            copied, waited = _covered(gap, known), _covered(gap, [*known, *near(gap, waiting)])
            stall["transfer"] += copied - sum(lasted.values()) + lasted.pop("transfer", 0)
            stall["wait"] += waited - copied
            stall["host"] += gap[1] - gap[0] - waited
            for span in loading:
                stall[span.stage] += sum(lasted.values()) * span.duration_ns / max(whole, 1)
    shares = {stage: lasted / total for stage, lasted in stall.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _waited_for(gap: Interval, waits: Sequence[Span]) -> set[int]:
    """Return the batches that the loop waited for inside `gap`.

    A loop that prefetches copies waits for the batch after the one of the next step.
    """
    first = bisect_right(waits, gap[0], key=lambda wait: wait.end_ns)
    last = bisect_left(waits, gap[1], key=lambda wait: wait.start_ns)
    return {wait.batch for wait in waits[first:last]}


def outside(whole: Interval, parts: Iterable[Interval]) -> Iterator[Interval]:
    """Yield the intervals of `whole` outside `parts`, which must be disjoint and sorted."""
    reached, end = whole
    for start, stop in parts:
        if start > reached:
            yield reached, start
        reached = max(reached, stop)
    if end > reached:
        yield reached, end


def near(gap: Interval, intervals: Sequence[Interval]) -> Sequence[Interval]:
    """Return the `intervals` that overlap `gap`. They must be disjoint and sorted."""
    first = bisect_right(intervals, gap[0], key=lambda interval: interval[1])
    return intervals[first : bisect_left(intervals, gap[1], key=lambda interval: interval[0])]


def _covered(gap: Interval, intervals: Iterable[Interval]) -> int:
    """Return the length of the part of `gap` that `intervals` cover."""
    inside = ((max(start, gap[0]), min(end, gap[1])) for start, end in intervals)
    return _length(union(part for part in inside if part[0] < part[1]))


def _within(gap: Interval, spans: Iterable[Span]) -> dict[str, int]:
    """Return the time of each stage inside `gap`, without counting overlaps twice."""
    lasted: dict[str, int] = {}
    reached = gap[0]
    for span in sorted(spans, key=lambda s: s.start_ns):
        start, end = max(span.start_ns, reached), min(span.end_ns, gap[1])
        if end > start:
            lasted[span.stage] = lasted.get(span.stage, 0) + end - start
            reached = end
    return lasted


def hidden_share(spans: Sequence[Span]) -> float:
    """Return the share of the copying time that overlaps a step, or 1.0 without copies.

    The first copy of an epoch cannot overlap a step, so a perfect prefetcher has (n - 1) / n for n
    batches. Exclude the span of this copy to rate the others.
    """
    copies, steps = (
        [(span.start_ns, span.end_ns) for span in spans if span.lane == lane]
        for lane in ("copy", "gpu")
    )
    copying, computing = _length(union(copies)), _length(union(steps))
    hidden = copying + computing - _length(union([*copies, *steps]))
    return hidden / copying if copying else 1.0
