"""Read a deck: front matter, slides, speaker notes, and Markdown with custom blocks.

    ---
    title: Fast data loaders
    minutes: 45
    ---
    # Fast data loaders
    Note:
    **1 min.**

    *Say:* Welcome.
    ---
    ## The heading states the message of the slide
    - a bullet
    + a bullet that appears on a key press

    :::columns
    left
    :::column
    right
    :::

    :::source Somebody, Journal 1 (2026)

    <!-- part: read: the file -->
    From here on, slides have the color of the stage `read`, and the name of the part.

    :::guess fast-3
    title: A longer queue
    A question that the room can answer on its wall. It covers the slide and its heading until
    the next key press. The block is explained in `course_utils/stories/wall/questions.py`.
    unit: times
    :::

A block ends with a line `:::`. A source, a demo or `:::book` may be a single line without it.
`blocks.py` defines the blocks. The front matter may also have the `name` of the speaker and the
`place` of the talk.

Notes begin with the minutes, as in `**1.5 min.**`, and have up to three parts: `*Say:*` (required),
`*Ask:*`, which comes first if the room votes, and `*Background:*`. A slide with `**1.5 min, skip if
late.**` is left out in the short version of a talk, whose length the front matter states as `short:
33`. A slide with `**1.5 min, backup.**` follows the last slide. Its minutes do not count.
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
_PARAGRAPH = r"(?:.+\n)*.+\s*"
_NOTES = re.compile(
    r"\s*\*\*(?P<minutes>\d+(?:\.\d+)?) min"
    r"(?:(?P<skip>, skip if late)|(?P<backup>, backup))?\.\*\*\s*"
    rf"(?P<spoken>(?:\*Ask:\*{_PARAGRAPH})?\*Say:\*{_PARAGRAPH}(?:\*Ask:\*{_PARAGRAPH})?)"
    rf"(?:\*Background:\*{_PARAGRAPH})?"
)
_FENCE = re.compile(r"\s*(```+)")
_HEADING = re.compile(r"#{1,2} ")
_BLOCK = re.compile(r":::(\w*)\s*(.*)")
_ONE_LINE = re.compile(r":::(source \S|demo|book)")


class DeckError(Exception):
    """A deck that the builder cannot read. The message names the slide."""


@dataclass(frozen=True)
class Slide:
    """One slide of a deck."""

    where: str  # deck, number and heading, for messages
    heading: str
    text: str  # Markdown without the notes
    parts: Sequence[str | Block]  # the parsed text
    notes: str
    spoken: str  # the parts `Say` and `Ask` of the notes
    minutes: float
    skippable: bool  # if the talk is late
    backup: bool  # after the end of the talk


@dataclass(frozen=True)
class Deck:
    """A talk."""

    name: str
    title: str
    subtitle: str
    by: str  # speaker and place, may be empty
    minutes: float
    short: float | None  # minutes without the skippable slides
    slides: Sequence[Slide]


def read_deck(path: Path, **head: str | None) -> Deck:
    """Read the deck in `path`. `head` replaces entries of its front matter.

    Raises:
        DeckError: If the deck breaks a rule of the format. The message names the slide.
    """
    text = path.read_text("utf-8")
    front = _FRONT.match(text)
    if not front:
        raise DeckError(f"{path.name} must begin with a line `---`, `title:`, and `---`.")
    about = dict(re.findall(r"^(\w+):\s*(.*?)\s*$", front[1], re.MULTILINE))
    about |= {name: text for name, text in head.items() if text is not None}
    if missing := {"title", "subtitle", "minutes"} - about.keys():
        raise DeckError(f"{path.name} lacks {', '.join(sorted(missing))} between the `---` lines.")
    slides = [
        _slide(source, path.stem, number)
        for number, source in enumerate(_slides(text[front.end() :]), 1)
    ]
    return Deck(
        path.stem,
        about["title"],
        about["subtitle"],
        " · ".join(about[name] for name in ("name", "place") if name in about),
        float(about["minutes"]),
        float(about["short"]) if "short" in about else None,
        slides,
    )


def _slides(text: str) -> Iterator[str]:
    """Yield the texts between lines `---`."""
    lines: list[str] = []
    for line, is_code in _lines(text):
        if line.strip() == "---" and not is_code:
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is code. Code lines have no meaning for the deck."""
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
    wanted = "# Title" if number == 1 else "## The message of the slide"
    mark, _, heading = "".join(headings).partition(" ")
    if len(headings) != 1 or mark != wanted.partition(" ")[0]:
        raise DeckError(f"{deck}, slide {number} needs one `{wanted}`, but it has {headings}.")
    where = f"{deck}, slide {number} ({heading})"
    read = _NOTES.fullmatch(notes)
    if not read:
        raise DeckError(
            f"{where}: the notes must begin with `**N min.**`, as in **1.5 min.** The paragraphs "
            "`*Say:*`, `*Ask:*` and `*Background:*` follow, in this order."
        )
    minutes, parts = float(read["minutes"]), _parse(text, where)
    skippable, backup = (read[mark] is not None for mark in ("skip", "backup"))
    return Slide(where, heading, text, parts, notes, read["spoken"], minutes, skippable, backup)


def _parse(text: str, where: str) -> list[str | Block]:
    """Return the lines of `text`, with each block parsed into a `Block`."""
    whole = Block("", "", [[]])
    opened = [whole]  # innermost block last
    last = ""
    for line, is_code in _lines(text):
        mark = None if is_code else _BLOCK.fullmatch(line.rstrip())
        if not mark:
            opened[-1].columns[-1].append(line)
        elif mark[1] == "column":
            if opened[-1].name != "columns":
                raise DeckError(
                    f"{where}: `:::column` is outside of `:::columns`. Write `:::columns`, the "
                    "first column, `:::column`, the second column, and one `:::` at the end."
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
            raise DeckError(f"{where}: a line `:::` has no block to close. Remove it.")
        last = line
    if len(opened) > 1:
        raise DeckError(f"{where}: `:::{opened[-1].name}` is not closed. Add a line `:::`.")
    return whole.columns[0]


def to_html(slide: Slide, deck: str) -> str:
    """Return the HTML of a slide of `deck`, and draw its figures.

    Raises:
        DeckError: If a block is incomplete or unknown.
    """

    def rendered(parts: Sequence[str | Block]) -> Iterator[str]:
        for _, group in groupby(parts, type):  # consecutive lines are one text
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
