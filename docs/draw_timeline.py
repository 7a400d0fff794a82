"""Draw the picture of the README: `python docs/draw_timeline.py docs/timeline.svg`."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from course_utils.measure.picture import Picture, as_svg
from course_utils.measure.simulate import Pipeline, simulate


def main(arguments: Sequence[str]) -> int:
    """Draw one loop twice: first as most people write it, then overlapped."""
    slow = Pipeline(
        read_ms=60, decode_ms=25, transform_ms=10, collate_ms=5, copy_ms=8, step_ms=30, steps=16
    )
    fast = replace(slow, num_workers=4, pinned=True, overlap=True, sync=False)
    names = ("Naive loop", "4 workers, prefetched to the GPU")
    picture = Picture([simulate(slow), simulate(fast)], names)
    Path(arguments[0]).write_text(as_svg(picture), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
