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

Every block ends with a line `:::`; `blocks.py` says which there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slides.build.blocks import Block, render_block
from slides.build.rich_text import render

_FRONT = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_MINUTES = re.compile(r"\s*\*\*(\d+(?:\.\d+)?) min\.\*\*")
_FENCE = re.compile(r"\s*(```+)")
_BLOCK = re.compile(r":::(\w*)\s*(.*)")


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
    html = _render(text.splitlines(), deck, where)
    return Slide(heading, text, html, render(notes), float(minutes[1]))


def _render(lines: Sequence[str], deck: str, where: str) -> str:
    """Return the HTML of Markdown in which blocks stand."""
    html: list[str] = []
    plain: list[str] = []
    for part in _parts(lines, where):
        if isinstance(part, str):
            plain.append(part)
            continue
        html.append(render("\n".join(plain)))
        plain = []
        inner = _columns(part.lines) if part.name == "columns" else [part.lines]
        rendered = [_render(lines, deck, where) for lines in inner]
        try:
            html.append(render_block(part, rendered, deck))
        except (ValueError, OSError, TypeError) as error:
            raise DeckError(f"{where}, :::{part.name} {part.argument}: {error}") from error
    return "".join([*html, render("\n".join(plain))])


def _parts(lines: Sequence[str], where: str) -> Iterator[str | Block]:
    """Yield lines, and whole blocks for those inside of one."""
    opened: list[str] = []  # names of the blocks that are open, the outermost first
    block = Block("", "", [])
    fence = ""
    for line in lines:
        fence = _fence_after(fence, line)
        mark = None if fence else _BLOCK.fullmatch(line.rstrip())
        opens = mark and mark[1] and mark[1] != "column"
        if mark and not mark[1]:
            if not opened:
                raise DeckError(f"{where}: a line `:::` closes no block.")
            opened.pop()
            if not opened:
                yield block
                continue
        elif mark and opens:
            opened.append(mark[1])
            if len(opened) == 1:
                block = Block(mark[1], mark[2], [])
                continue
        elif mark and opened[-1:] != ["columns"]:
            raise DeckError(
                f"{where}: `:::column` stands outside of columns. Write `:::columns`, the first "
                "column, `:::column`, the second, and one `:::` at the end."
            )
        if opened:
            block.lines.append(line)
        else:
            yield line
    if opened:
        raise DeckError(f"{where}: `:::{opened[-1]}` is not closed by a line `:::`.")


def _columns(lines: Sequence[str]) -> list[list[str]]:
    """Cut at the lines `:::column` that belong to the outermost columns."""
    columns: list[list[str]] = [[]]
    depth = 0
    for line in lines:
        mark = _BLOCK.fullmatch(line.rstrip())
        if mark and mark[1] == "column" and depth == 0:
            columns.append([])
            continue
        if mark and mark[1] != "column":
            depth += 1 if mark[1] else -1
        columns[-1].append(line)
    return [column for column in columns if any(map(str.strip, column))]
