"""Draw a picture without scripts, as SVG (on GitHub, in print) or as text.

The SVG contains a description for screen readers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from keepfed.formatting import axis, duration, percent
from keepfed.measure.picture.model import ALL_LOOKS, Picture, gpu_label, legend, pattern
from keepfed.measure.spans import (
    STAGES,
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
COLUMN = 5  # width of one bar in pixels if the spans are too narrow to be drawn one by one

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
    longest = max(end - start for start, end in map(reach, picture.traces))
    mark = f"{zlib.crc32(picture.sentence.encode()):08x}"  # keeps IDs unique within a page
    parts: list[str] = []
    y = TOP
    for trace, name in zip(picture.traces, picture.names, strict=True):
        parts += _panel_header(trace, name, y)
        y += HEADER
        for lane in lanes(trace):
            height = GPU_HEIGHT if lane.name == "gpu" else LANE_HEIGHT
            parts += _lane(trace, lane, y, height, longest, mark)
            y += height + GAP
    head = [*_definitions(mark), *_heading(picture, mark), *_axis(longest, y)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ct" viewBox="0 0 {WIDTH} {y + 4}" '
        f'width="{WIDTH}" height="{y + 4}" role="img" aria-labelledby="{mark}t {mark}d">'
        + "".join([*head, *parts])
        + "</svg>\n"
    )


def _x(ns: float | NDArray[np.float64], longest: int) -> NDArray[np.float64]:
    """Return the positions in pixels of times since the start of a trace, in ns."""
    return np.asarray(LEFT + ns * (WIDTH - LEFT - RIGHT) / longest)


def _definitions(mark: str) -> Iterator[str]:
    patterns = "".join(pattern(name, f"{mark}{name}") for name in ALL_LOOKS)
    yield f"<style>{STYLE}</style><defs>{patterns}</defs>"
    yield f'<rect class="paper" width="{WIDTH}" height="100%" rx="8"/>'


def _heading(picture: Picture, mark: str) -> Iterator[str]:
    yield f'<title id="{mark}t">{escape(picture.sentence)}</title>'
    yield f'<desc id="{mark}d">{escape(_description(picture))}</desc>'
    x = 8
    for name, label in legend(picture.traces).items():
        yield f'<rect x="{x}" y="9" width="24" height="13" rx="2" {_paint(mark, name)}/>'
        yield f'<text x="{x + 30}" y="16">{label}</text>'
        x += 52 + 7 * len(label)


def _axis(longest: int, bottom: int) -> Iterator[str]:
    for ns, reading in axis(longest, 8).items():
        x = _x(ns, longest)
        yield f'<path class="line" d="M{x:.1f} 50V{bottom}"/>'
        yield f'<text class="soft mid" x="{x:.1f}" y="42">{reading}</text>'


def _panel_header(trace: SpanLog, name: str, y: int) -> Iterator[str]:
    middle, summary = y + HEADER // 2, summarize(trace)
    # Escape the label, because it contains "<" below 1 %.
    busy = escape(f"{gpu_label('busy', trace)} {summary.shares[0]}")
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
    trace: SpanLog, lane: Lane, y: int, height: int, longest: int, mark: str
) -> Iterator[str]:
    origin, end = reach(trace)
    is_gpu, middle, right = lane.name == "gpu", y + height / 2, float(_x(end - origin, longest))
    width, busy = right - LEFT, escape(percent(busy_share(trace, lane)))
    yield f'<text x="8" y="{middle}">{escape(lane.name)}</text>'
    yield f'<text class="soft end" x="{LEFT - 8}" y="{middle}">{busy}</text>'
    yield f'<rect class="track" x="{LEFT}" y="{y}" width="{width:.1f}" height="{height}"/>'
    if is_gpu and right < WIDTH - 140:  # label a run that ends before the longest one
        after = f"done after {duration(end - origin)}"
        box = f'x="{right + 5:.0f}" y="{middle - 8}" width="{6.6 * len(after):.0f}"'
        yield f'<rect class="paper" {box} height="16"/>'  # hides the grid line behind the text
        yield f'<text class="soft" x="{right + 8:.0f}" y="{middle}">{after}</text>'
    if is_gpu:
        gaps = [_x(np.subtract(gap, origin), longest) for gap in idle_gaps(trace)]
        boxes = "".join(_box(x, y, y + height) for x in gaps)
        yield f'<path d="{boxes}" class="idle" fill="url(#{mark}idle)"/>'
    crowded, outlined = len(lane.placed) * 2 > width, len(lane.placed) * 8 < width
    columns = np.linspace(origin, end, 1 + max(1, int(width / COLUMN)))
    for row in range(lane.rows):
        placed = [p for p in lane.placed if p.row == row]
        times = {time for p in placed for time in (p.span.start_ns, p.span.end_ns)}
        edges = columns if crowded else np.array(sorted(times), float)
        x, top = _x(edges - origin, longest), y + row * height / lane.rows
        for stage, path in _bars(busy_shares(placed, edges), x, top, height / lane.rows):
            yield f'<path d="{path}" {_paint(mark, stage, outlined=outlined)}/>'


def _bars(
    shares: NDArray[np.float64], x: NDArray[np.float64], top: float, height: float
) -> Iterator[tuple[str, str]]:
    """Yield each stage with its path: between two `x`, a bar as high as its share of the time."""
    tops = top + (1 - shares.cumsum(axis=0).clip(0, 1)) * height
    # Draw the highest bars first. Each later stage covers the part that belongs to it.
    for number, stage in reversed([*enumerate(STAGES)]):
        columns = np.flatnonzero(shares[number] > 0.01)
        if path := "".join(_box(x[i : i + 2], tops[number, i], top + height) for i in columns):
            # Neighboring bars become one line, which is shorter.
            yield stage, re.sub(r"(H([\d.]+)V([\d.]+))zM\2 \3", r"\1", path)


def _box(x: NDArray[np.float64], top: float, bottom: float) -> str:
    left, right = x[0], max(x[1], x[0] + 0.3)
    return f"M{left:.1f} {bottom:.4g}V{top:.4g}H{right:.1f}V{bottom:.4g}z"


def _paint(mark: str, name: str, *, outlined: bool = True) -> str:
    look = ALL_LOOKS[name]
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
    labels = [f"{ALL_LOOKS[name].letter} {label}" for name, label in legend(picture.traces).items()]
    return "\n".join([*lines, "", "   ".join(labels)])


def _text_row(trace: SpanLog, lane: Lane, longest: int) -> str:
    origin, end = reach(trace)
    shares = busy_shares(lane.placed, np.linspace(origin, origin + longest, LETTERS + 1))
    row = ""
    for column, share in enumerate(shares.T):
        idle = lane.name == "gpu" and column * longest < (end - origin) * LETTERS
        empty = ALL_LOOKS["idle"].letter if idle else " "
        row += ALL_LOOKS[STAGES[share.argmax()]].letter if share.sum() >= 0.5 else empty
    return f"{lane.name:<9} {percent(busy_share(trace, lane)):>6} {row.rstrip()}"
