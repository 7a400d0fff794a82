"""Say in words and figures what a trace shows; these stand beside every picture."""

from __future__ import annotations

from collections.abc import Iterable

from course_utils.measure.picture.layout import idle_gaps, reach
from course_utils.measure.spans import SpanLog, Summary, summarise
from course_utils.words import duration, percent, plural

NOTICED_NS = 100_000  # shorter gaps than this are the launch of the next step, not idle time


def sentence(trace: SpanLog, name: str = "") -> str:
    """Return the one sentence that a learner should take from the picture of `trace`."""
    summary = summarise(trace)
    name = f"{name[0].upper()}{name[1:]}: the" if name else "The"
    if not summary.steps:
        return f"{name} GPU computed nothing: call gpu.step(batch) in the loop."
    computes, waits = percent(summary.utilisation), percent(summary.idle)
    return f"{name} GPU computes {computes} of the time and waits {waits}{_reason(summary)}."


def _reason(summary: Summary) -> str:
    start_up = summary.start_up_s / summary.total_s
    stage = next(iter(summary.stall))
    if summary.idle < 0.005:
        return ""
    if start_up > 0.9 * summary.idle:
        return ", nearly all of it start-up"
    before = f"; {percent(start_up)} is start-up" if start_up >= 0.005 else ""
    return f", mostly for {'the next batch' if stage == 'wait' else stage}{before}"


def facts(trace: SpanLog) -> dict[str, str]:
    """Return the figures shown as cards: GPU busy, idle gaps, duration, samples per second."""
    summary = summarise(trace)
    gaps = [end - start for start, end in idle_gaps(trace) if end - start >= NOTICED_NS]
    longest = f", longest {duration(max(gaps))}" if gaps else ""
    start, end = reach(trace)
    figures = {
        "GPU busy": percent(summary.utilisation),
        "GPU idle": plural(len(gaps), "gap") + longest,
        "Whole run": duration(end - start),
    }
    if summary.samples:
        figures["Samples per second"] = f"{summary.samples_per_s:,.0f}"
    return figures


def compared(traces: Iterable[SpanLog], names: Iterable[str]) -> dict[str, str]:
    """Return how busy the GPU was in each of several traces."""
    shares = (percent(summarise(trace).utilisation) for trace in traces)
    return {f"{name}: GPU busy": share for name, share in zip(names, shares, strict=True)}
