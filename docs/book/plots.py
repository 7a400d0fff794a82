"""Plots as SVG in the colors of their page, drawn once for a wide page and once for a phone."""

from __future__ import annotations

import re
from html import escape
from io import StringIO
from math import ceil
from textwrap import fill

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.legend import Legend
from matplotlib.text import Text

WIDE, NARROW = 8.0, 3.7  # largest widths in inches of 96 pixels
LETTERS = 8.5  # points on a phone, which are 11.3 pixels
NAMES, TITLE = 18, 44  # most letters in a line on a phone, next to and above a panel
MOST = 100_000  # bytes of an SVG; the shapes of a larger one become an image inside it

_GRAY = re.compile(r"(<(?:text|tspan|g) [^>]*?)fill: #(?:808080|7f7f7f)")
_UNUSED = re.compile(
    r'<metadata>.*?</metadata>|<style .*?</style>| id="(?:\w+_\d+|matplotlib\.axis_\d+)"'
    r'| transform="rotate\(-?0 [^)]*\)"|font-family: [^;"]*;? ?',
    re.DOTALL,
)


def as_html(figure: Figure) -> str:
    """Return `figure` as HTML with an alternative text. This changes the size of the figure."""
    meaning = escape(alternative_text(figure))
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    width, height = figure.get_size_inches()
    figure.set_size_inches(min(width, WIDE), height)
    wide = _svg(figure)
    _fit_phone(figure)
    drawn = f'<div class="wide">{wide}</div><div class="narrow">{_svg(figure)}</div>'
    return f'<div class="plot" role="img" aria-label="{meaning}">{drawn}</div>'


def alternative_text(figure: Figure) -> str:
    """Return the title, the axes and the series or values of `figure` in words."""
    labels = [text.get_text() for legend in _legends(figure) for text in legend.get_texts()]
    parts, names = [figure.get_suptitle()], list[str]()
    for panel in figure.axes:
        names = [label.get_text() for label in panel.get_yticklabels()] or names
        values = [text.get_text() for text in panel.texts]
        bars = len(names) == len(values)
        pairs = map(" ".join, zip(names, values, strict=True)) if bars else ()
        axes = " against ".join(filter(None, [panel.get_ylabel(), panel.get_xlabel()]))
        parts.append(": ".join(filter(None, [panel.get_title(), axes, ", ".join(pairs)])))
    parts.append(", ".join(dict.fromkeys(labels)))
    return f"Plot. {'. '.join(dict.fromkeys(filter(None, parts)))}.".replace("\n", " ")


def _fit_phone(figure: Figure) -> None:
    """Make `figure` as narrow as a phone: panels below each other, and small letters."""
    width, height = figure.get_size_inches()
    panels = {panel: spec for panel in figure.axes if (spec := panel.get_subplotspec())}
    rows, columns, *_ = next(iter(panels.values())).get_geometry()
    pictures = all(panel.images for panel in panels)
    beside = min(columns, 2 if pictures else 1)
    below = ceil(len(panels) / beside)
    places = GridSpec(below, beside, figure)
    for number, panel in enumerate(panels):
        panel.set_subplotspec(places[number])
        panel.tick_params(labelleft=True)
        _break_names(panel, TITLE // beside)
    tall = height / rows
    if pictures:  # keep their shape, and leave space for a title
        tall = tall * (NARROW / beside) / (width / columns) + 0.2
    figure.suptitle(fill(figure.get_suptitle(), TITLE))
    extra = _move_legends_below(figure)
    figure.set_size_inches(NARROW, below * min(tall, NARROW) + extra)
    for text in figure.findobj(Text):
        text.set_fontsize(LETTERS)


def _break_names(panel: Axes, width: int) -> None:
    panel.set_title("\n".join(fill(line, width) for line in panel.get_title().split("\n")))
    names = [label.get_text() for label in panel.get_yticklabels()]
    if any(len(name) > NAMES and "$" not in name for name in names):
        panel.set_yticks(panel.get_yticks(), [fill(name, NAMES) for name in names])
    panel.tick_params(labelsize=LETTERS)


def _move_legends_below(figure: Figure) -> float:
    """Replace all legends by one below the panels, and return its height in inches."""
    entries: dict[str, Artist] = {}
    for legend in _legends(figure):
        names = [text.get_text() for text in legend.get_texts()]
        entries |= dict(zip(names, filter(None, legend.legend_handles), strict=True))
        legend.remove()
    if not entries:
        return 0
    columns = 1 if max(map(len, entries)) > NAMES else 2
    look = {"ncols": columns, "frameon": False, "labelcolor": "gray"}
    figure.legend(entries.values(), entries, loc="outside lower center", **look)
    return 0.2 * ceil(len(entries) / columns)


def _legends(figure: Figure) -> list[Legend]:
    return [*figure.legends, *filter(None, (panel.get_legend() for panel in figure.axes))]


def _svg(figure: Figure) -> str:
    svg = _saved(figure)
    if len(svg) > MOST:
        for panel in figure.axes:
            for shape in (*panel.lines, *panel.collections, *panel.patches):
                shape.set_rasterized(True)
        svg = _saved(figure)
    return svg


def _saved(figure: Figure) -> str:
    file = StringIO()
    with plt.rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg", dpi=110, bbox_inches="tight", pad_inches=0.02)
    svg = _UNUSED.sub("", file.getvalue()[file.getvalue().index("<svg") :])
    return re.sub(r"\s*\n\s*", " ", _GRAY.sub(r"\1fill: currentColor", svg))
