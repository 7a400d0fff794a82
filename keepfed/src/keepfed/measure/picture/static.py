"""Draw a picture without scripts, as SVG (on GitHub, in print) or as text.

The SVG contains a description for screen readers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from html import escape

import numpy as np

from keepfed.formatting import axis, duration, percent
from keepfed.measure.picture.model import (
    IDLE,
    LOOKS,
    TILE,
    Look,
    Picture,
    gpu_label,
)
from keepfed.measure.spans import (
    STAGES,
    Interval,
    Lane,
    SpanLog,
    busy_share,
    busy_shares,
    idle_gaps,
    lanes,
    reach,
    summarize,
)
from keepfed.palette import DARK, LIGHT

WIDTH, LEFT, RIGHT, TOP = 960, 118, 12, 64
LANE_HEIGHT, GPU_HEIGHT, GAP, HEADER = 18, 30, 6, 28
LETTERS = 72  # width of a text timeline in characters
MARGIN = 17  # characters to the left of it, for the name and the busy share of the lane
COLUMN = 3  # width in pixels of one bar if spans are too narrow to be drawn one by one

# In JupyterLab, its theme takes precedence over the theme of the system.
STYLE = f"""
.ct{{{LIGHT.css()};
font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;max-width:100%;height:auto}}
@media screen and (prefers-color-scheme:dark){{.ct{{{DARK.css()}}}}}
@media screen{{[data-jp-theme-light=true] .ct{{{LIGHT.css()}}}}}
@media screen{{[data-jp-theme-light=false] .ct{{{DARK.css()}}}}}
.ct text{{fill:var(--fg);dominant-baseline:middle}}.ct .soft{{fill:var(--soft);font-size:11px}}
.ct .bold{{font-weight:600;font-size:14px}}.ct .end{{text-anchor:end}}.ct .mid{{text-anchor:middle}}
.ct .line{{stroke:var(--grid)}}.ct .track{{fill:var(--track)}}.ct .paper{{fill:var(--bg)}}
.ct .idle{{stroke:var(--idle)}}.ct .pill{{fill:var(--bg);stroke:var(--soft)}}
"""


def as_svg(picture: Picture) -> str:
    """Return `picture` as one SVG element with a title and a description."""
    scale = _Scale(max(end - start for start, end in map(reach, picture.traces)))
    mark = f"{zlib.crc32(picture.sentence.encode()):08x}"  # keeps IDs unique within a page
    parts: list[str] = []
    y = TOP
    for trace, name in zip(picture.traces, picture.names, strict=True):
        parts += _panel_header(trace, name, y)
        y += HEADER
        for lane in lanes(trace):
            height = GPU_HEIGHT if lane.name == "gpu" else LANE_HEIGHT
            parts += _lane(trace, lane, y, height, scale, mark)
            y += height + GAP
    head = [*_definitions(mark), *_heading(picture, mark), *_axis(scale, y)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ct" viewBox="0 0 {WIDTH} {y + 4}" '
        f'width="{WIDTH}" height="{y + 4}" role="img" aria-labeledby="{mark}t {mark}d">'
        + "".join([*head, *parts])
        + "</svg>\n"
    )


class _Scale:
    """Time axis that converts nanoseconds since the start of a trace to pixels."""

    def __init__(self, length_ns: int):
        self.length_ns = length_ns
        self.per_ns = (WIDTH - LEFT - RIGHT) / length_ns

    def x(self, ns: float) -> float:
        return LEFT + ns * self.per_ns


def _definitions(mark: str) -> Iterator[str]:
    yield f"<style>{STYLE}</style><defs>"
    for name, look in {**LOOKS, "idle": IDLE}.items():
        color = 'class="idle"' if name == "idle" else f'stroke="{look.ink}"'
        cap = 'stroke-width="2.2" stroke-linecap="round"' if look.dots else 'stroke-width="1.2"'
        yield (
            f'<pattern id="{mark}{name}" width="{TILE}" height="{TILE}" '
            f'patternUnits="userSpaceOnUse"><path d="M0 0h{TILE}v{TILE}h-{TILE}z" '
            f'fill="{look.color}" fill-opacity="{look.opacity}"/>'
            f'<path d="{look.tile}" {color} {cap}/></pattern>'
        )
    yield f'</defs><rect class="paper" width="{WIDTH}" height="100%" rx="8"/>'


def _heading(picture: Picture, mark: str) -> Iterator[str]:
    yield f'<title id="{mark}t">{escape(picture.sentence)}</title>'
    yield f'<desc id="{mark}d">{escape(_description(picture))}</desc>'
    used = {span.stage for trace in picture.traces for span in trace.spans}
    x = 8
    shown = {name: look for name, look in LOOKS.items() if name in used}
    for name, look in {**shown, "idle": IDLE}.items():
        text = gpu_label(name, *picture.traces) if name == "idle" else name
        yield f'<rect x="{x}" y="9" width="24" height="13" rx="2" {_paint(mark, name, look)}/>'
        yield f'<text x="{x + 30}" y="16">{text}</text>'
        x += 52 + 7 * len(text)


def _axis(scale: _Scale, bottom: int) -> Iterator[str]:
    for ns, reading in axis(scale.length_ns, 8).items():
        x = scale.x(ns)
        yield f'<path class="line" d="M{x:.1f} 50V{bottom}"/>'
        yield f'<text class="soft mid" x="{x:.1f}" y="42">{reading}</text>'


def _panel_header(trace: SpanLog, name: str, y: int) -> Iterator[str]:
    middle, summary = y + HEADER // 2, summarize(trace)
    # Escape the label, because it contains "<" below 1 %.
    busy = escape(f"{gpu_label('busy', trace)} {percent(summary.utilization)}")
    title = f'<tspan class="bold">{escape(name)}</tspan> · {busy}' if name else busy
    yield f'<rect class="paper" y="{y + 3}" width="{WIDTH}" height="{HEADER - 6}"/>'
    yield f'<text x="8" y="{middle}">{title}</text>'
    if trace.note:
        width = 16 + 6.6 * len(trace.note)
        x = WIDTH - RIGHT - width
        yield (
            f'<rect class="pill" x="{x:.0f}" y="{y + 5}" width="{width:.0f}" height="18" rx="9"/>'
            f'<text class="mid" x="{x + width / 2:.0f}" y="{middle}">{escape(trace.note)}</text>'
        )


def _lane(
    trace: SpanLog, lane: Lane, y: int, height: int, scale: _Scale, mark: str
) -> Iterator[str]:
    origin, end = reach(trace)
    is_gpu = lane.name == "gpu"
    share, right = busy_share(trace, lane), scale.x(end - origin)
    width = right - LEFT
    yield f'<text x="8" y="{y + height / 2}">{escape(lane.name)}</text>'
    busy = escape(percent(share))
    yield f'<text class="soft end" x="{LEFT - 8}" y="{y + height / 2}">{busy}</text>'
    yield f'<rect class="track" x="{LEFT}" y="{y}" width="{width:.1f}" height="{height}"/>'
    if is_gpu and right < WIDTH - 140:  # label a run that ends before the longest one
        after = f"done after {duration(end - origin)}"
        box = f'x="{right + 5:.0f}" y="{y + height / 2 - 8}" width="{6.6 * len(after):.0f}"'
        yield f'<rect class="paper" {box} height="16"/>'  # hides the grid line behind the text
        yield f'<text class="soft" x="{right + 8:.0f}" y="{y + height / 2}">{after}</text>'
    if is_gpu:
        gaps = [(start - origin, stop - origin) for start, stop in idle_gaps(trace)]
        boxes = "".join(_box(scale, gap, y, height) for gap in gaps)
        yield f'<path d="{boxes}" class="idle" fill="url(#{mark}idle)"/>'
    crowded, outlined = len(lane.placed) * 2 > width, len(lane.placed) * 8 < width
    shapes = _columns if crowded else _boxes
    for stage, path in shapes(lane, (origin, end), y, height, scale):
        yield f'<path d="{path}" {_paint(mark, stage, LOOKS[stage], outlined=outlined)}/>'


def _boxes(
    lane: Lane, window: Interval, y: int, height: int, scale: _Scale
) -> Iterator[tuple[str, str]]:
    """Yield a path with the spans of each stage. Nested spans are smaller and come last."""
    row_height = height / lane.rows
    for depth in sorted({placed.depth for placed in lane.placed}):
        paths: dict[str, str] = {}
        for p in lane.placed:
            if p.depth == depth:
                inset = min(3 * depth, row_height / 3)
                times = p.span.start_ns - window[0], p.span.end_ns - window[0]
                box = _box(scale, times, y + p.row * row_height + inset, row_height - 2 * inset)
                paths[p.span.stage] = paths.get(p.span.stage, "") + box
        yield from paths.items()


def _columns(
    lane: Lane, window: Interval, y: int, height: int, scale: _Scale
) -> Iterator[tuple[str, str]]:
    """Yield a bar chart for each stage with its share of the time in each column."""
    length = (window[1] - window[0]) * scale.per_ns
    count = max(1, round(length / COLUMN))
    row_height = height / lane.rows
    shares = busy_shares(lane, window, count)
    tops = (shares.cumsum(axis=1).clip(0, 1) * row_height).round(1)
    # Draw the highest bars first. Each later stage covers the part that belongs to it.
    for number in reversed(np.flatnonzero(shares.sum(axis=(0, 2)) > 0.01)):
        path = ""
        for row, heights in enumerate(tops[:, number]):
            steps = np.diff(heights, prepend=0, append=0).round(1)
            sides = "".join(f"v{-step:g}h{length / count:.3g}" for step in steps[:-1])
            path += (
                f"M{LEFT} {y + (row + 1) * row_height:.4g}{sides}V{y + (row + 1) * row_height:.4g}z"
            )
        yield STAGES[number], path


def _box(scale: _Scale, times: Interval, y: float, height: float) -> str:
    x, width = scale.x(times[0]), max((times[1] - times[0]) * scale.per_ns, 0.3)
    return f"M{x:.1f} {y:.4g}h{width:.1f}v{height:.4g}h-{width:.1f}z"


def _paint(mark: str, name: str, look: Look, *, outlined: bool = True) -> str:
    if not outlined:  # spans are too narrow for lines and patterns
        return f'fill="{look.color}" fill-opacity="{look.opacity}"'
    edge = 'class="idle"' if name == "idle" else f'stroke="{look.edge(dark=False)}"'
    return f'fill="url(#{mark}{name})" {edge} stroke-width="0.8"'


def _description(picture: Picture) -> str:
    """Return the busy share of each lane in words, for screen readers."""
    return " ".join(
        f"{name or 'Run'}{f' ({trace.note})' if trace.note else ''}: "
        + ", ".join(f"{lane.name} busy {percent(busy_share(trace, lane))}" for lane in lanes(trace))
        + "."
        for trace, name in zip(picture.traces, picture.names, strict=True)
    )


def as_text(picture: Picture) -> str:
    """Return `picture` as lines of text, in which each letter is the main stage of its time."""
    lines = [picture.sentence]
    longest = max(end - start for start, end in map(reach, picture.traces))
    for trace, name in zip(picture.traces, picture.names, strict=True):
        lines += ["", " · ".join(part for part in (name, trace.note) if part)]
        lines += [f"{'0':>{MARGIN + 1}}{duration(longest):>{LETTERS - 1}}"]
        lines += [_text_row(trace, lane, longest) for lane in lanes(trace)]
    used = {span.stage for trace in picture.traces for span in trace.spans}
    legend = [f"{look.letter} {stage}" for stage, look in LOOKS.items() if stage in used]
    return "\n".join(
        [*lines, "", "   ".join([*legend, f"{IDLE.letter} {gpu_label('idle', *picture.traces)}"])]
    )


def _text_row(trace: SpanLog, lane: Lane, longest: int) -> str:
    origin, end = reach(trace)
    shares = busy_shares(lane, (origin, origin + longest), LETTERS).sum(axis=0)
    row = ""
    for column, share in enumerate(shares.T):
        idle = lane.name == "gpu" and column * longest < (end - origin) * LETTERS
        empty = IDLE.letter if idle else " "
        row += LOOKS[STAGES[share.argmax()]].letter if share.sum() >= 0.5 else empty
    return f"{lane.name:<9} {percent(busy_share(trace, lane)):>6} {row.rstrip()}"
