"""Write the Markdown of a deck that opens each notebook: its goals, and its first question.

All text comes from the sources of the notebooks. `python -m slides.build openings` builds the deck.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from notebooks.build import HERE as NOTEBOOKS
from notebooks.build import number, parts, sources
from slides.instructor.contents import goals, notes, questions, task, title
from slides.instructor.schedule import in_class

_DECK = """\
---
title: Openings
subtitle: Two slides before each notebook
minutes: {minutes}
---
{slides}
"""
_SLIDE = """\
{heading}
{text}

Note:
**1 min.**
*Say:* {say}

*Background:* {background}"""


def deck() -> str:
    """Return the Markdown of the deck."""
    files = [path for path in sources(NOTEBOOKS / "source") if number(path).isdecimal()]
    slides = [slide for path in files for slide in opening(path)]
    links = [f"[{number(path)}](#notebook-{number(path)})" for path in files]
    first = _slide("# Openings", links, "Welcome back.", "Choose a notebook. The key O shows all.")
    return _DECK.format(minutes=len(slides) + 1, slides="\n---\n".join([first, *slides]))


def opening(source: Path) -> Iterator[str]:
    """Yield the two slides that open a notebook."""
    said, minutes = notes(source), in_class(number(source), parts(source)[0])
    key, question = next(iter(questions(source).items()))
    script = said["Script"].partition("\n- ")[0].partition("min* ")[2]
    (guesses,) = (one for one in said["Guesses"].split("\n- ") if f"**{key}** " in one)
    target = f'<span id="notebook-{number(source)}"></span>'
    learned = [f"- {goal.text}" for goal in goals(source)]
    lines = [f"{target}You will {task(source)}", "", "**You will learn**", "", *learned]
    told = f"Leave out first: {said['Leave out']} First item: {script}"
    yield _slide(f"## {title(source)}", lines, f"This notebook takes {minutes} minutes.", told)
    asked = [f"- {choice}" for choice in question.choices] or [f"… {question.unit}"]
    told = "Everybody enters a guess, and two of you defend different ones."
    lines = [f"> {question.text}", "", *asked]
    yield _slide(f"## Guess first: {key}", lines, told, guesses.partition("** ")[2])


def _slide(heading: str, lines: Sequence[str], say: str, background: str) -> str:
    text, background = "\n".join(lines), " ".join(background.split())
    return _SLIDE.format(heading=heading, text=text, say=say, background=background)
