"""Draw the picture of the README: `python docs/draw_timeline.py docs/timeline.svg`.

Time passes in it three times, and then it stands still; for who wants no motion it never moves.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from keepfed.measure.picture import Picture, as_svg
from keepfed.measure.picture.static import GAP, GPU_HEIGHT, HEADER, LANE_HEIGHT, LEFT, TOP, WIDTH
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import lanes

# What hides the future is moved out to the right, and there it stays for a while.
MOTION = f"""<style>
.future,.now{{display:none}}.now{{stroke:var(--fg);stroke-width:1.5}}
@media screen and (prefers-reduced-motion:no-preference){{
.future,.now{{display:inline;animation:pass 11s linear 3 both}}}}
@keyframes pass{{75%{{transform:translateX({WIDTH - LEFT}px)}}
76%,100%{{transform:translateX({WIDTH}px)}}}}
</style>"""


def main(arguments: Sequence[str]) -> int:
    """Draw one loop twice: first as most people write it, then overlapped."""
    slow = Pipeline(
        read_ms=60, decode_ms=25, transform_ms=10, collate_ms=5, copy_ms=8, step_ms=30, steps=16
    )
    fast = replace(slow, num_workers=4, pinned=True, overlap=True, sync=False)
    names = ("Naive loop", "4 workers, prefetched to the GPU")
    picture = Picture([simulate(slow), simulate(fast)], names)
    moving = "".join([MOTION, *_future(picture), "</svg>"])
    Path(arguments[0]).write_text(as_svg(picture).replace("</svg>", moving), "utf-8")
    return 0


def _future(picture: Picture) -> Iterator[str]:
    """Yield what covers the rows of each trace, and the line that is now."""
    y = TOP
    for trace in picture.traces:
        y += HEADER
        heights = [GPU_HEIGHT if lane.name == "gpu" else LANE_HEIGHT for lane in lanes(trace)]
        height = sum(heights) + GAP * len(heights)
        yield (
            f'<rect class="future paper" x="{LEFT}" y="{y - 1}" width="{WIDTH - LEFT}" '
            f'height="{height - GAP + 2}"/><path class="now" d="M{LEFT} {y}v{height - GAP}"/>'
        )
        y += height


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
