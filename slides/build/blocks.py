"""Blocks of a deck: figures, values, timelines, demos, guesses, columns and source lines."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from io import StringIO
from pathlib import Path
from zlib import crc32

import matplotlib.pyplot as plt
import segno
from matplotlib.figure import Figure
from matplotlib.text import Text

from course_utils.paths import recording
from course_utils.stories.figures import log_dots, value_bars
from course_utils.stories.lecture import demos, load_finding
from course_utils.stories.wall.questions import deck_question
from docs.publish import address
from keepfed.measure.picture import Control, Picture, TimelineGrid, key
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.palette import BAD, GOOD, MEASURED, SLIDE_TEXT
from slides.build.rich_text import render

_VALUE = re.compile(r"(?P<mark>[!*]?) ?(?P<name>.+): (?P<value>[\d.e]+)(?: = (?P<shown>.+))?")
STYLES = ("course_utils.plots.style", Path(__file__).with_name("figures.mplstyle"))


@dataclass(frozen=True)
class Block:
    """A block `:::name argument`, up to its closing `:::`."""

    name: str
    argument: str
    columns: list[list[str | Block]]  # one, except for `:::columns`

    @property
    def lines(self) -> list[str]:
        """Non-empty lines of the block."""
        return [line for line in self.columns[0] if isinstance(line, str) and line.strip()]


def render_block(block: Block, inner: Sequence[str], deck: str) -> str:
    """Return the HTML of `block`.

    Args:
        block: The block.
        inner: HTML of the content of each column.
        deck: Name of the deck.

    Raises:
        ValueError: If the name of the block is unknown, or the block is incomplete.
    """
    match block.name:
        case "figure":
            return _figure(block, deck)
        case "bars" | "dots":
            return _values(block)
        case "timeline":
            return _framed(_simulated(block.lines))
        case "demo":
            return _demo(block, inner)
        case "guess":
            return _guess(block)
        case "columns":
            columns = "".join(f"<div>{column}</div>" for column in inner)
            return f'<div class="columns">{columns}</div>'
        case "book":
            return _book()
        case "source":
            return f'<div class="source">{render(block.argument)}{"".join(inner)}</div>'
    raise ValueError("The block is unknown. Use figure, bars, dots, timeline, demo or columns.")


def _figure(block: Block, deck: str) -> str:
    """Return the figure that a function of `slides.figures.<deck>` draws."""
    meaning = " ".join(" ".join(block.lines).split())
    if not meaning:
        raise ValueError("The figure has no description. Add a line for readers who cannot see it.")
    functions = vars(import_module(f"slides.figures.{deck}"))
    if block.argument not in functions:
        raise ValueError(f"slides.figures.{deck} has no function of this name.")
    with plt.style.context(STYLES):
        return _as_html(functions[block.argument](), block.argument, meaning)


def _values(block: Block) -> str:
    """Return values as bars, or as dots on a logarithmic axis: lines `name: 15e12 = 15 trillion`.

    A line that begins with `!` has the color of what is bad, and `*` the color of what is good.
    """
    rows = [match for line in block.lines if (match := _VALUE.fullmatch(line))]
    if not rows or len(rows) < len(block.lines):
        raise ValueError("The block needs lines such as `name: 1.5e9 = 1.5 billion`.")
    values = {row["name"]: float(row["value"]) for row in rows}
    shown = {float(row["value"]): row["shown"] or row["value"] for row in rows}
    colors = [{"!": BAD, "*": GOOD}.get(row["mark"], MEASURED) for row in rows]
    meaning = ", ".join(f"{name} {shown[value]}" for name, value in values.items())
    with plt.style.context(STYLES):
        figure, panel = plt.subplots(figsize=(12.2, 1.1 + 0.58 * len(rows)))
        if block.name == "dots":
            log_dots(panel, values, block.argument, shown.__getitem__, colors)
        else:
            value_bars(panel, values, shown.__getitem__, color=colors)
            panel.set(xlabel=block.argument, xlim=(0, 1.15 * max(shown)))
        return _as_html(figure, f"values{crc32(meaning.encode())}", f"{block.argument}: {meaning}")


def _as_html(drawn: object, name: str, meaning: str) -> str:
    letters = _letters(drawn) if isinstance(drawn, Figure) else ""
    svg = _as_svg(drawn, name) if isinstance(drawn, Figure) else str(drawn)
    svg = _with_own_ids(svg[svg.index("<svg") :], f"{name}-").replace(SLIDE_TEXT, "currentColor")
    return f'<figure role="img" aria-label="{escape(meaning)}"{letters}>{svg}</figure>'


def _letters(figure: Figure) -> str:
    """Return the size of the smallest letters of a figure, in pixels, as an attribute."""
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    smallest = min((float(text.get_fontsize()) for text in texts), default=99.0)
    return f' data-letters="{smallest * 96 / 72:.1f}"'


def _as_svg(figure: Figure, name: str) -> str:
    file = StringIO()
    with plt.rc_context({"svg.hashsalt": name}):  # otherwise the ids are random
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    width, height = (inches * 96 for inches in figure.get_size_inches())
    size = f'<svg width="{width:.0f}" height="{height:.0f}"'
    return re.sub(r'<svg height="[^"]*"|<svg width="[^"]*"', size, file.getvalue(), count=1)


def _with_own_ids(svg: str, prefix: str) -> str:
    """Return `svg` with ids that are unique on the page and without its own labels."""
    svg = re.sub(r' aria-(labelledby|describedby)="[^"]*"', "", svg)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", svg)


def _demo(block: Block, inner: Sequence[str]) -> str:
    """Return the command of a lecture demo and its folded recording."""
    name, _, optional = block.argument.partition(" ")
    if name not in demos():
        raise ValueError(f"Unknown demo {name!r}. Run `course demo` to list the demos.")
    finding = load_finding(recording(f"demos/{name}.json"))
    return (
        f'<div class="demo"><kbd>course demo {name}</kbd>{"".join(inner)}'
        f"<details><summary>{optional and 'optional, '}as recorded: R</summary>"
        f"{_framed(finding.timeline())}"
        f'<p class="recorded">Recorded on {escape(finding.about["machine"])}</p></details></div>'
    )


def _book() -> str:
    """Return the address of the book and its QR code, or how to build the book."""
    link = address().book or address().repository
    if not link:
        return render("`make book`")
    shown = escape(link.removeprefix("https://").replace("/", "/\u200b"))  # may wrap at slashes
    drawn = segno.make(link, micro=False).svg_inline(scale=9, light="white")
    code = f'<figure role="img" aria-label="QR code of the book">{drawn}</figure>'
    return f'{code}<p><a href="{escape(link)}">{shown}</a></p>'


def _guess(block: Block) -> str:
    """Return a question, below which the deck shows the wall of the class if there is one."""
    question = deck_question(block.argument, block.lines)
    title = re.findall(r"^title: (.*)", "\n".join(block.lines), re.MULTILINE) or ["Guess first"]
    answers = "".join(f"<li>{escape(choice)}</li>" for choice in question.choices)
    unit = f" ({question.unit})" if question.unit else ""
    return (
        f'<div class="guess" data-key="{escape(question.key)}"><h2>{escape(title[0])}</h2>'
        f"{render(question.text + unit)}{f'<ul>{answers}</ul>' if answers else ''}</div>"
    )


def _framed(grid: TimelineGrid) -> str:
    return f'<div class="timeline">{grid.to_fragment(module=False)}</div>'


def _simulated(lines: Sequence[str]) -> TimelineGrid:
    parts = [line.partition(":") for line in lines]
    pictures = {
        name.strip(): Picture([simulate(_pipeline(settings))]) for name, _, settings in parts
    }
    controls = [Control("show", "Show", list(pictures))] if len(pictures) > 1 else []
    named = {key(controls, {"show": name}): picture for name, picture in pictures.items()}
    return TimelineGrid(controls, named)


def _pipeline(settings: str) -> Pipeline:
    """Parse settings such as `read_ms=60 num_workers=4 pinned=True`."""
    pairs = [setting.partition("=") for setting in settings.split()]
    return Pipeline(**{name: literal_eval(value) for name, _, value in pairs})
