"""Draw formulas with matplotlib as SVG, without a web font or a script."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from itertools import cycle

from matplotlib import style
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextToPath

_EM = 100  # font size of the paths
_COMMANDS = {
    int(Path.MOVETO): "M",
    int(Path.LINETO): "L",
    int(Path.CURVE3): "Q",
    int(Path.CURVE4): "C",
}


@cache
def formula(tex: str, *, display: bool = False) -> str:
    """Return the formula `tex`, without its dollars, as an SVG element as tall as the text.

    Raises:
        ValueError: If matplotlib's mathtext cannot parse `tex`.
    """
    text, drawing = f"${tex.strip()}$", TextToPath()
    with style.context("course_utils.plots.style"):
        font = FontProperties(size=_EM)
        width, height, below = drawing.get_text_width_height_descent(text, font, ismath=True)
        points, codes = drawing.get_text_path(font, text, ismath=True)
    pad = 4.0  # strokes extend beyond the measured box
    box = (-pad, below - height - pad, width + 2 * pad, height + 2 * pad)
    segments = Path(points, codes).iter_segments(simplify=False)
    path = "".join(_segment(corners, int(code)) for corners, code in segments)
    em = 1.3 / _EM if display else 1 / _EM
    return (
        f'<svg class="{"formula shown" if display else "formula"}" role="img" '
        f'aria-label="{escape(tex.strip())}" viewBox="{" ".join(f"{x:.1f}" for x in box)}" '
        f'style="width:{box[2] * em:.3f}em;height:{box[3] * em:.3f}em;'
        f'vertical-align:{-(below + pad) * em:.3f}em"><path d="{path}"/></svg>'
    )


def _segment(corners: Iterable[float], code: int) -> str:
    """Return one segment of a path in SVG syntax, with the y axis downwards."""
    if code == Path.CLOSEPOLY:
        return "Z"
    numbers = [f"{sign * x:.1f}" for x, sign in zip(corners, cycle((1, -1)))]
    return _COMMANDS[code] + " ".join(numbers)
