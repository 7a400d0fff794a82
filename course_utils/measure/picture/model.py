"""Say what a picture shows: traces, a sentence, some figures, and the controls that switch.

`pack` writes all of it as short columns of whole numbers, which is what the browser draws from. A
column of a lane holds one number per span. Starts are distances from the end of the span before,
mostly 0 in a busy lane, so that gzip makes little of them: 216 simulated runs of 40 batches fit in
one static page.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

from course_utils.measure.spans import (
    STAGES,
    Lane,
    SpanLog,
    Summary,
    idle_gaps,
    lanes,
    reach,
    summarise,
)
from course_utils.words import duration, percent, plural

NOTICED_NS = 100_000  # shorter gaps than this are the launch of the next step, not idle time

State = Mapping[str, str | int]


@dataclass(frozen=True)
class Control:
    """One thing the learner can switch: a name in the state, a label, the values to choose from.

    `texts` are what the learner reads instead of the values.
    """

    name: str
    label: str
    options: Sequence[str | int]
    texts: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """What one state shows: traces above each other on one time axis, a sentence, some figures.

    Names left out are the traces' labels; sentence and figures left out are made from the traces.
    """

    traces: Sequence[SpanLog]
    names: Sequence[str] = ()
    sentence: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Fill in what was left out."""
        names = tuple(self.names) or tuple(trace.label for trace in self.traces)
        says = "\n".join(map(sentence, self.traces, names))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "sentence", self.sentence or says)
        alone = len(self.traces) == 1
        figures = facts(self.traces[0]) if alone else compared(self.traces, names)
        object.__setattr__(self, "facts", self.facts or figures)


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


def key(controls: Sequence[Control], state: State) -> str:
    """Return the name of a state, such as "strategy=naive|load=80"; a lone picture's is ""."""
    return "|".join(f"{control.name}={state[control.name]}" for control in controls)


def states(controls: Sequence[Control]) -> Iterator[dict[str, str | int]]:
    """Yield every state that `controls` can be in; without any there is one, the empty one."""
    names = [control.name for control in controls]
    for options in product(*(control.options for control in controls)):
        yield dict(zip(names, options, strict=True))


def pack(
    controls: Sequence[Control], pictures: Mapping[str, Picture], *, resolution: int = 10_000
) -> bytes:
    """Return controls and pictures as gzip-compressed JSON, the same bytes for the same input.

    Args:
        controls: what can be switched; the first one keeps the time axis.
        pictures: by `key` of the state.
        resolution: into how many ticks the longest trace is divided.
    """
    traces = {id(trace): trace for picture in pictures.values() for trace in picture.traces}
    number = {name: index for index, name in enumerate(traces)}
    data = {
        "controls": [vars(control) for control in controls],
        "traces": [columns(trace, tick_ns(trace, resolution)) for trace in traces.values()],
        "pictures": {
            name: {
                "traces": [number[id(trace)] for trace in picture.traces],
                "names": picture.names,
                "sentence": picture.sentence,
                "facts": dict(picture.facts),
            }
            for name, picture in pictures.items()
        },
    }
    text = json.dumps(data, separators=(",", ":"), default=list)
    return gzip.compress(text.encode(), 9, mtime=0)


def embedded(packed: bytes) -> str:
    """Return packed bytes as text that can stand in a page."""
    return base64.b64encode(packed).decode()


def tick_ns(trace: SpanLog, resolution: int) -> int:
    """Return the length of a tick: 1, 2 or 5 times a power of ten microseconds."""
    start, end = reach(trace)
    ticks = (factor * int(10**power) for power in count(3) for factor in (1, 2, 5))
    return next(tick for tick in ticks if tick * resolution >= end - start)


def columns(trace: SpanLog, tick: int) -> dict[str, Any]:
    """Return `trace` as plain data; times in ticks of `tick` nanoseconds from the first start."""
    start, end = reach(trace)
    return {
        "note": trace.note,
        "tick": tick / 1e6,
        "end": round((end - start) / tick),
        "lanes": [_lane_columns(lane, start, tick) for lane in lanes(trace)],
    }


def _lane_columns(lane: Lane, origin: int, tick: int) -> dict[str, Any]:
    gaps, lengths, batches = [], [], []
    last_end = last_batch = 0
    for placed in lane.placed:
        span = placed.span
        start, end = (round((t - origin) / tick) for t in (span.start_ns, span.end_ns))
        gaps.append(start - last_end)
        lengths.append(end - start)
        batches.append(span.batch - last_batch)
        last_end, last_batch = end, span.batch
    stages = [STAGES.index(placed.span.stage) for placed in lane.placed]
    data: dict[str, Any] = {"name": lane.name, "gap": gaps, "length": lengths, "batch": batches}
    data["stage"] = "".join(map(str, stages))
    nesting = {
        "row": [placed.row for placed in lane.placed],
        "depth": [placed.depth for placed in lane.placed],
        "under": [STAGES.index(p.under) if p.under else -1 for p in lane.placed],
    }
    if any(nesting["row"]) or any(nesting["depth"]):  # few lanes have overlapping spans
        data |= nesting
    return data
