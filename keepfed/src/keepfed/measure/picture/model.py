"""Model of a picture: its traces, sentence, figures and controls, and the look of each stage.

Every stage has one color and one pattern. The palette of Okabe and Ito is safe for color-blind
readers, and the patterns distinguish the stages in gray print. `pack` converts a picture to short
columns of integers, from which the browser draws.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, product
from typing import Any

import numpy as np

from keepfed import palette
from keepfed.formatting import duration, percent, plural
from keepfed.measure.spans import (
    MARK,
    STAGES,
    Lane,
    SpanLog,
    Summary,
    compute_spans,
    compute_unit,
    idle_gaps,
    lanes,
    reach,
    stall_label,
    summarize,
)

NOTICED_NS = 100_000  # minimum length of an idle gap; shorter gaps are the launch of a step
TILE = 8  # width and height of a pattern tile in pixels

WAITING = "wait (not busy)"  # label of the stage, because a lane full of it is 0 % busy

State = Mapping[str, str | int]


@dataclass(frozen=True)
class Look:
    """Colors, pattern and letter of one stage."""

    color: str
    text: str  # color of a batch number on the span
    tile: str  # pattern of one tile, as an SVG path
    letter: str  # letter of the stage in a text timeline
    opacity: float = 1.0

    @property
    def ink(self) -> str:
        """The color of the pattern."""
        return palette.INKS.get(self.color, self.color)

    @property
    def dots(self) -> bool:
        """Whether the pattern consists of dots, which are lines of zero length with round caps."""
        return self.tile == _DOTS

    def edge(self, dark: bool) -> str:
        """Return an outline color with a contrast of at least 3:1 to the background."""
        toward, share = (255, 0.25) if dark else (0, 0.45)
        channels = bytes.fromhex(self.color[1:])
        return "#" + bytes(round(c + (toward - c) * share) for c in channels).hex()


_DOTS = "M2 2h0M6 6h0"
_SLASH = "M-2 2L2 -2M-1 9L9 -1M6 10L10 6"
_BACKSLASH = "M-2 6L2 10M-1 -1L9 9M6 -2L10 2"
_CROSS = f"{_SLASH}{_BACKSLASH}"
_RUNGS = "M0 2H8M0 6H8"
_POSTS = "M2 0V8M6 0V8"

LOOKS = {
    "read": Look(palette.READ, palette.WHITE, _DOTS, "r"),
    "decode": Look(palette.DECODE, palette.BLACK, _SLASH, "d"),
    "transform": Look(palette.TRANSFORM, palette.BLACK, _CROSS, "t"),
    "collate": Look(palette.COLLATE, palette.BLACK, _RUNGS, "c"),
    "transfer": Look(palette.TRANSFER, palette.BLACK, _POSTS, ">"),
    "compute": Look(palette.COMPUTE, palette.BLACK, "", "#"),
    "wait": Look(palette.WAIT, palette.BLACK, "", "~", opacity=0.28),
}

IDLE = Look(palette.IDLE, palette.BLACK, _BACKSLASH, ".", opacity=0.1)
ALL_LOOKS = {**LOOKS, "idle": IDLE}


def looks() -> dict[str, dict[str, object]]:
    """Return all looks as plain data, including outlines."""
    return {
        name: {
            **asdict(look),
            "ink": look.ink,
            "dots": look.dots,
            "edges": [look.edge(dark=False), look.edge(dark=True)],
            "pattern": pattern(name, f"p-{name}"),
        }
        for name, look in ALL_LOOKS.items()
    }


def pattern(name: str, key: str) -> str:
    """Return the pattern of a stage or of `idle` as an SVG element with the ID `key`."""
    look = ALL_LOOKS[name]
    stroke = 'class="idle"' if name == "idle" else f'stroke="{look.ink}"'
    ends = 'stroke-width="2.2" stroke-linecap="round"' if look.dots else 'stroke-width="1.2"'
    return (
        f'<pattern id="{key}" width="{TILE}" height="{TILE}" patternUnits="userSpaceOnUse">'
        f'<path d="M0 0h{TILE}v{TILE}h-{TILE}z" fill="{look.color}" fill-opacity="{look.opacity}"/>'
        f'<path d="{look.tile}" {stroke} {ends}/></pattern>'
    )


def legend(traces: Sequence[SpanLog]) -> dict[str, str]:
    """Return the labels of the stages in `traces` and of `idle`, in the order of the legend."""
    used = {span.stage for trace in traces for span in trace.spans}
    labels = {stage: stage for stage in STAGES if stage in used}
    if "wait" in labels:
        labels["wait"] = WAITING
    return {**labels, "idle": gpu_label("idle", *traces)}


@dataclass(frozen=True)
class Control:
    """Switch of a picture: its name in the state, its label and its options."""

    name: str
    label: str
    options: Sequence[str | int]


class Picture:
    """Content of one state: traces on one time axis, a sentence and some figures."""

    def __init__(
        self,
        traces: Sequence[SpanLog],
        names: Sequence[str] = (),
        facts: Mapping[str, str] | None = None,
        *,
        steps: int | None = None,
    ):
        """Create a picture of `traces`.

        Args:
            traces: Traces to draw below each other.
            names: Names of the traces. By default, these are their labels.
            facts: Figures on the cards. By default, they are computed from the traces.
            steps: Number of steps of the first trace in the first view. By default, all steps.
        """
        self.traces = list(traces)
        self.names = tuple(names) or tuple(trace.label for trace in traces)
        self.sentence = "\n".join(map(sentence, self.traces, self.names))
        self.facts = facts or _picture_facts(self.traces, self.names)
        self.until_ms = _end_of_step_ms(self.traces[0], steps) if steps else None


def sentence(trace: SpanLog, name: str = "") -> str:
    """Return one sentence that summarizes the picture of `trace`."""
    summary = summarize(trace)
    name = f"{name[0].upper()}{name[1:]}: the {summary.who}" if name else f"The {summary.who}"
    if not summary.steps:
        return f"{name} computed nothing. {MARK}"
    busy, idle, _ = summary.shares
    return f"{name} computes {busy} of the time and waits {idle}{_reason(summary)}."


def _reason(summary: Summary) -> str:
    start_up = summary.start_up_s / summary.total_s
    stage = next(iter(summary.stall))
    if summary.idle < 0.005:
        return ""
    if start_up > 0.9 * summary.idle:
        return ", nearly all of it during start-up"
    if start_up > 0.5 * summary.idle:
        return f", most of it during start-up ({percent(start_up)})"
    before = f". Start-up takes {percent(start_up)}" if start_up >= 0.005 else ""
    return f", mostly for {stall_label(stage)}{before}"


def gpu_label(word: str, *traces: SpanLog) -> str:
    """Return "GPU busy" for "Busy", or the word alone if no trace contains a GPU."""
    on_gpu = any(compute_unit(compute_spans(trace.spans)) == "GPU" for trace in traces)
    return f"GPU {word.lower()}" if on_gpu else word


def facts(trace: SpanLog) -> dict[str, str]:
    """Return the figures for the cards: busy share, idle gaps, duration, samples per second."""
    summary = summarize(trace)
    gaps = [end - start for start, end in idle_gaps(trace) if end - start >= NOTICED_NS]
    longest = f", longest {duration(max(gaps))}" if gaps else ""
    start, end = reach(trace)
    figures = {
        gpu_label("Busy", trace): summary.shares[0],
        gpu_label("Idle", trace): plural(len(gaps), "gap") + longest,
        "Whole run": duration(end - start),
    }
    if summary.samples:
        figures["Samples per second"] = f"{summary.samples_per_s:,.0f}"
    return figures


def _end_of_step_ms(trace: SpanLog, step: int) -> float | None:
    """Return the time in ms from the start of `trace` to the end of step `step`, from 1."""
    computed = compute_spans(trace.spans)[:step]
    return (computed[-1].end_ns - reach(trace)[0]) / 1e6 if computed else None


def _picture_facts(traces: Sequence[SpanLog], names: Sequence[str]) -> dict[str, str]:
    """Return the figures of a single trace, or the busy share of each of several traces."""
    if len(traces) == 1:
        return facts(traces[0])
    return {
        f"{name}: {gpu_label('busy', trace)}": summarize(trace).shares[0]
        for trace, name in zip(traces, names, strict=True)
    }


def key(controls: Sequence[Control], state: State) -> str:
    """Return the name of a state, such as "strategy=naive|load=80", or "" without controls."""
    return "|".join(f"{control.name}={state[control.name]}" for control in controls)


def states(controls: Sequence[Control]) -> Iterator[dict[str, str | int]]:
    """Yield every combination of options, or one empty state without controls."""
    names = [control.name for control in controls]
    for options in product(*(control.options for control in controls)):
        yield dict(zip(names, options, strict=True))


def pack(controls: Sequence[Control], pictures: Mapping[str, Picture], ticks: int) -> bytes:
    """Return controls and pictures as gzip-compressed JSON.

    The same input always gives the same bytes.

    Args:
        controls: Switches. Pictures that differ only in the first one share a time axis.
        pictures: Pictures by the `key` of their state.
        ticks: Number of ticks in the longest trace.
    """
    traces = {id(trace): trace for picture in pictures.values() for trace in picture.traces}
    number = {name: index for index, name in enumerate(traces)}
    data = {
        "controls": [vars(control) for control in controls],
        "traces": [columns(trace, tick_ns(trace, ticks)) for trace in traces.values()],
        "pictures": {
            name: {**vars(picture), "traces": [number[id(trace)] for trace in picture.traces]}
            for name, picture in pictures.items()
        },
    }
    text = json.dumps(data, separators=(",", ":"), default=list)
    return gzip.compress(text.encode(), 9, mtime=0)


def tick_ns(trace: SpanLog, ticks: int) -> int:
    """Return the length of a tick in ns, which is 1, 2 or 5 times a power of ten microseconds."""
    start, end = reach(trace)
    round_ns = (factor * int(10**power) for power in count(3) for factor in (1, 2, 5))
    return next(tick for tick in round_ns if tick * ticks >= end - start)


def columns(trace: SpanLog, tick: int) -> dict[str, Any]:
    """Return `trace` as plain data, with times in ticks of `tick` nanoseconds from its start."""
    start, end = reach(trace)
    return {
        "note": trace.note,
        "at_most": trace.steps_are == "bounds",
        "tick": tick / 1e6,
        "end": round((end - start) / tick),
        "lanes": [_lane_columns(lane, start, tick) for lane in lanes(trace)],
    }


def _lane_columns(lane: Lane, origin: int, tick: int) -> dict[str, Any]:
    """Return columns with one number per span; `gap` is the time since the previous span."""
    spans = [placed.span for placed in lane.placed]
    times = np.array([(span.start_ns, span.end_ns) for span in spans])
    starts, ends = np.rint((times - origin) / tick).astype(int).T
    data = {
        "name": lane.name,
        "gap": (starts - [0, *ends[:-1]]).tolist(),
        "length": (ends - starts).tolist(),
        "batch": np.diff([span.batch for span in spans], prepend=0).tolist(),
        "stage": "".join(str(STAGES.index(span.stage)) for span in spans),
    }
    # Only few lanes have overlapping or nested spans, so most traces omit these columns.
    if any(placed.row or placed.depth for placed in lane.placed):
        data["row"] = [placed.row for placed in lane.placed]
        data["depth"] = [placed.depth for placed in lane.placed]
        data["under"] = [STAGES.index(p.under) if p.under else -1 for p in lane.placed]
    return data
