"""Draw the picture of the README: `python docs/draw_timeline.py docs/timeline.svg`.

The picture shows the complete runs for two seconds, then plays them once. It does not move for
readers who prefer reduced motion. On a phone, it shows only the two GPUs, in large letters.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from keepfed.formatting import duration, percent
from keepfed.measure.picture import LOOKS, Picture, as_svg
from keepfed.measure.picture.static import GAP, GPU_HEIGHT, HEADER, LANE_HEIGHT, LEFT, TOP, WIDTH
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import compute_spans, lanes, reach, summarize

# A cover hides the future. It moves to the right as time passes, and out of the picture at the end.
STYLE = f"""<style>
.narrow,.future,.now{{display:none}}.now{{stroke:var(--fg);stroke-width:1.5}}
.wide{{--way:{WIDTH - LEFT}px}}.narrow{{--way:{WIDTH}px;font-size:34px}}
.ct .narrow .bold{{font-size:34px}}
@media screen and (max-width:600px){{.wide{{display:none}}.narrow{{display:inline}}}}
@media screen and (prefers-reduced-motion:no-preference){{
.future,.now{{display:inline;animation:pass 12s linear both}}}}
@keyframes pass{{0%,16%,91%,100%{{transform:translateX({2 * WIDTH}px)}}16.1%{{transform:none}}
90%{{transform:translateX(var(--way))}}}}
</style>"""
BAR, ROW = 66, 150  # height of a bar on a phone, and distance between two bars


def main(arguments: Sequence[str]) -> int:
    """Draw one loop twice: first as most people write it, then overlapped."""
    slow = Pipeline(
        read_ms=60, decode_ms=25, transform_ms=10, collate_ms=5, copy_ms=8, step_ms=30, steps=16
    )
    fast = replace(slow, num_workers=4, pinned=True, overlap=True, sync=False)
    names = ("Naive loop", "4 workers, prefetched to the GPU")
    picture = Picture([simulate(slow), simulate(fast)], names)
    head, _, rows = as_svg(picture).partition("</desc>")
    wide = ['<g class="wide">', rows.removesuffix("</svg>\n"), *_future(picture), "</g>"]
    narrow = ['<g class="narrow">', *_narrow(picture), "</g>"]
    drawing = "".join([head, "</desc>", STYLE, *wide, *narrow, "</svg>\n"])
    Path(arguments[0]).write_text(drawing, "utf-8")
    return 0


def _future(picture: Picture) -> Iterator[str]:
    """Yield the cover and the line of the current time for the rows of each trace."""
    y = TOP
    for trace in picture.traces:
        y += HEADER
        heights = [GPU_HEIGHT if lane.name == "gpu" else LANE_HEIGHT for lane in lanes(trace)]
        height = sum(heights) + GAP * len(heights)
        yield _cover(LEFT, y, height - GAP)
        y += height


def _narrow(picture: Picture) -> Iterator[str]:
    """Yield a title and a bar for the GPU of each trace: computing, or idle."""
    per_ns = WIDTH / max(end - start for start, end in map(reach, picture.traces))
    for row, (trace, name) in enumerate(zip(picture.traces, picture.names, strict=True)):
        (start, end), y = reach(trace), 70 + ROW * row
        width = (end - start) * per_ns
        busy = f"GPU busy {percent(summarize(trace).utilization)}"
        boxes = "".join(
            f"M{(span.start_ns - start) * per_ns:.1f} {y}"
            f"h{(span.end_ns - span.start_ns) * per_ns:.1f}v{BAR}h-"
            f"{(span.end_ns - span.start_ns) * per_ns:.1f}z"
            for span in compute_spans(trace.spans)
        )
        yield f'<text x="4" y="{y - 30}"><tspan class="bold">{escape(busy)}</tspan> · {name}</text>'
        yield f'<rect y="{y}" width="{width:.0f}" height="{BAR}" class="idle" fill="none"/>'
        yield f'<path d="{boxes}" fill="{LOOKS["compute"].color}"/>'
        if width < WIDTH / 2:
            after = f"done after {duration(end - start)}"
            yield f'<text x="{width + 14:.0f}" y="{y + BAR / 2:.0f}">{after}</text>'
        yield _cover(0, y, BAR)
    yield '<text x="4" y="352">Simulated. Orange: the GPU computes. Empty: it waits.</text>'


def _cover(x: int, y: int, height: int) -> str:
    return (
        f'<rect class="future paper" x="{x}" y="{y - 1}" width="{WIDTH - x}" '
        f'height="{height + 2}"/><path class="now" d="M{x} {y}v{height}"/>'
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
