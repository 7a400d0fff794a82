"""Say in words and figures what a trace shows; these stand beside every picture."""

from __future__ import annotations

import math
from collections.abc import Iterable

from course_utils.measure.layout import idle_gaps, reach
from course_utils.measure.summary import Summary
from course_utils.measure.trace import Trace

NOTICED_NS = 100_000  # shorter gaps than this are the launch of the next step, not idle time


def sentence(trace: Trace, name: str = "") -> str:
    """Return the one sentence that a learner should take from the picture of `trace`."""
    summary = trace.summary()
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


def facts(trace: Trace) -> dict[str, str]:
    """Return the figures shown as cards: GPU busy, idle gaps, duration, samples per second."""
    summary = trace.summary()
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


def compared(traces: Iterable[Trace], names: Iterable[str]) -> dict[str, str]:
    """Return how busy the GPU was in each of several traces."""
    shares = (percent(trace.summary().utilisation) for trace in traces)
    return {f"{name}: GPU busy": share for name, share in zip(names, shares, strict=True)}


def percent(share: float) -> str:
    """Return `share` as "62 %"; only nothing at all is "0 %" and only all of it "100 %"."""
    if 0 < share < 0.005:
        return "< 1 %"
    if 0.995 <= share < 1:
        return "> 99 %"
    return f"{100 * share:.0f} %"


def plural(count: int, thing: str) -> str:
    """Return "1 gap" or "2 gaps"."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def duration(ns: float) -> str:
    """Return a length of time as it reads best: "2.41 s", "38 ms", "7.5 ms", "420 µs"."""
    if ns >= 1e9:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1e6:
        return f"{ns / 1e6:.0f} ms" if ns >= 1e7 else f"{ns / 1e6:.1f} ms"
    return f"{ns / 1e3:.0f} µs" if ns else "0 s"


def axis(length_ns: int, count: int) -> dict[int, str]:
    """Return about `count` round times from 0 to `length_ns` and how they read, in one unit."""
    raw = length_ns / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    unit, size = ("s", 1e9) if step >= 1e8 else ("ms", 1e6) if step >= 1e5 else ("µs", 1e3)
    digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
    times = [round(number * step) for number in range(int(length_ns / step) + 1)]
    return {time: f"{time / size:.{digits}f} {unit}" if time else "0" for time in times}
