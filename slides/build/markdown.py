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

A block ends with a line `:::`, but for those that are one line: a source, a demo, a timeline that
was recorded. `blocks.py` says which blocks there are.
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
_BLOCK = re.compile(r":::(\w*)\s*(.*)")
_ONE_LINE = re.compile(r":::(source \S|demo|timeline recording=)")


class DeckError(Exception):
    """A deck says something that the builder does not understand; the message says where."""


@dataclass(frozen=True)
class Slide:
    """One slide: what stands in the deck, and the HTML that comes of it."""

    heading: str
    text: str  # its Markdown, without the notes
    html: str
    notes: str  # HTML
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
    deck = Deck(path.stem, about["title"], about["subtitle"], float(about["minutes"]), slides)
    return deck


def _slides(text: str) -> Iterator[str]:
    """Yield the parts between lines `---`, which mean nothing inside of code."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        fence = _fence_after(fence, line)
        if line.strip() == "---" and not fence:
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _fence_after(fence: str, line: str) -> str:
    """Return the fence that is open after `line`, or nothing."""
    mark = _FENCE.match(line)
    if not mark:
        return fence
    if fence:
        return "" if line.strip() == fence else fence
    return mark[1]


def _slide(source: str, deck: str, number: int) -> Slide:
    text, _, notes = source.partition("\nNote:\n")
    headings = re.findall(r"^(#{1,2}) (.*)", text, re.MULTILINE)
    marks = [mark for mark, _ in headings]
    if marks != ["#" if number == 1 else "##"]:
        wanted = "`# Title`" if number == 1 else "one heading, `## The thought of the slide`"
        raise DeckError(f"{deck}, slide {number}: it needs {wanted}; found {headings}.")
    heading = headings[0][1].strip()
    where = f"{deck}, slide {number} ({heading})"
    minutes = _MINUTES.match(notes)
    if not minutes:
        raise DeckError(f"{where}: the notes have to begin with `**N min.**`, as in **1.5 min.**")
    html = _render(_parse(text.splitlines(), where), deck, where)
    return Slide(heading, text, html, render(notes), float(minutes[1]))


def _parse(lines: Sequence[str], where: str) -> list[str | Block]:
    """Return the lines, and blocks instead of those inside of one."""
    whole = Block("", "", [[]])
    opened = [whole]  # the innermost last
    fence = last = ""
    for line in lines:
        fence = _fence_after(fence, line)
        mark = None if fence else _BLOCK.fullmatch(line.rstrip())
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


def _render(parts: Sequence[str | Block], deck: str, where: str) -> str:
    """Return the HTML of Markdown in which blocks stand."""
    html = []
    for is_block, group in groupby(parts, lambda part: isinstance(part, Block)):
        if not is_block:
            html.append(render("\n".join(map(str, group))))
            continue
        for block in group:
            assert isinstance(block, Block)
            inner = [_render(column, deck, where) for column in block.columns]
            try:
                html.append(render_block(block, inner, deck))
            except (ValueError, OSError, TypeError) as error:
                raise DeckError(f"{where}, :::{block.name} {block.argument}: {error}") from error
    return "".join(html)
