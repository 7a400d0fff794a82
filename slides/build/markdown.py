"""Read a deck: front matter, slides, notes, and Markdown with blocks of our own.

    ---
    title: Fast data loaders
    minutes: 45
    ---
    # Fast data loaders
    Note:
    **1 min.** Welcome.
    ---
    ## A heading says the one thought of the slide
    - a bullet
    + a bullet that appears when its time has come

    :::columns
    left
    :::column
    right
    :::

    :::source Somebody, Journal 1 (2026)

A block ends with a line `:::`, but for a source or a demo that is one line. `blocks.py` says which
blocks there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from slides.build.blocks import Block, render_block
from slides.build.rich_text import render

_FRONT = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_MINUTES = re.compile(r"\s*\*\*(\d+(?:\.\d+)?) min\.\*\*")
_FENCE = re.compile(r"\s*(```+)")
_HEADING = re.compile(r"#{1,2} ")
_BLOCK = re.compile(r":::(\w*)\s*(.*)")
_ONE_LINE = re.compile(r":::(source \S|demo)")


class DeckError(Exception):
    """A deck says something that the builder does not understand; the message says where."""


@dataclass(frozen=True)
class Slide:
    """One slide as it stands in the deck."""

    where: str  # for messages
    heading: str
    text: str  # its Markdown, without the notes
    parts: Sequence[str | Block]  # the same, read
    notes: str
    minutes: float


@dataclass(frozen=True)
class Deck:
    """A talk."""

    name: str
    title: str
    subtitle: str
    minutes: float
    slides: Sequence[Slide]


def read_deck(path: Path) -> Deck:
    """Return the deck in `path`.

    Raises:
        DeckError: the deck breaks a rule of its language; the message names slide and rule.
    """
    text = path.read_text("utf-8")
    front = _FRONT.match(text)
    if not front:
        raise DeckError(f"{path.name} has to begin with a line `---`, `title:`, and `---`.")
    about = dict(re.findall(r"^(\w+):\s*(.*?)\s*$", front[1], re.MULTILINE))
    if missing := {"title", "subtitle", "minutes"} - about.keys():
        raise DeckError(f"{path.name} lacks {', '.join(sorted(missing))} between the `---` lines.")
    slides = [
        _slide(source, path.stem, number)
        for number, source in enumerate(_slides(text[front.end() :]), 1)
    ]
    return Deck(path.stem, about["title"], about["subtitle"], float(about["minutes"]), slides)


def _slides(text: str) -> Iterator[str]:
    """Yield the parts between lines `---`."""
    lines: list[str] = []
    for line, is_code in _lines(text):
        if line.strip() == "---" and not is_code:
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it belongs to code, where no line means anything to a deck."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        yield line, bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif line.strip() == fence:
            fence = ""


def _slide(source: str, deck: str, number: int) -> Slide:
    text, _, notes = source.partition("\nNote:\n")
    headings = [line for line, is_code in _lines(text) if _HEADING.match(line) and not is_code]
    wanted = "# Title" if number == 1 else "## The thought of the slide"
    mark, _, heading = "".join(headings).partition(" ")
    if len(headings) != 1 or mark != wanted.partition(" ")[0]:
        raise DeckError(f"{deck}, slide {number}: it needs one `{wanted}`; it has {headings}.")
    where = f"{deck}, slide {number} ({heading})"
    minutes = _MINUTES.match(notes)
    if not minutes:
        raise DeckError(f"{where}: the notes have to begin with `**N min.**`, as in **1.5 min.**")
    parts = _parse(text, where)
    return Slide(where, heading, text, parts, notes, float(minutes[1]))


def _parse(text: str, where: str) -> list[str | Block]:
    """Return the lines, and blocks instead of those inside of one."""
    whole = Block("", "", [[]])
    opened = [whole]  # the innermost last
    last = ""
    for line, is_code in _lines(text):
        mark = None if is_code else _BLOCK.fullmatch(line.rstrip())
        if not mark:
            opened[-1].columns[-1].append(line)
        elif mark[1] == "column":
            if opened[-1].name != "columns":
                raise DeckError(
                    f"{where}: `:::column` stands outside of columns. Write `:::columns`, the "
                    "first column, `:::column`, the second, and one `:::` at the end."
                )
            opened[-1].columns.append([])
        elif mark[1]:
            block = Block(mark[1], mark[2], [[]])
            opened[-1].columns[-1].append(block)
            if not _ONE_LINE.match(line):
                opened.append(block)
        elif len(opened) > 1:
            opened.pop()
        elif not _ONE_LINE.match(last):
            raise DeckError(f"{where}: a line `:::` closes no block.")
        last = line
    if len(opened) > 1:
        raise DeckError(f"{where}: `:::{opened[-1].name}` is not closed by a line `:::`.")
    return whole.columns[0]


def to_html(slide: Slide, deck: str) -> str:
    """Return the HTML of a slide of `deck`: figures are drawn now.

    Raises:
        DeckError: a block does not say what it has to.
    """

    def rendered(parts: Sequence[str | Block]) -> Iterator[str]:
        for _, group in groupby(parts, type):  # lines that follow each other are one text
            run = list(group)
            yield from (drawn(part) for part in run if isinstance(part, Block))
            yield render("\n".join(part for part in run if isinstance(part, str)))

    def drawn(block: Block) -> str:
        inner = ["".join(rendered(column)) for column in block.columns]
        try:
            return render_block(block, inner, deck)
        except (ValueError, OSError, TypeError) as error:
            told = f"{slide.where}, :::{block.name} {block.argument}: {error}"
            raise DeckError(told) from error

    return "".join(rendered(slide.parts))
