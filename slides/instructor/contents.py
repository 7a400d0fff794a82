"""Read from the source of a notebook what the instructor's guide and the slides show.

The text for the instructor is in cells with the tag "instructor". Such a cell begins with MARK, and
each part of it with a label in bold, one of HEADINGS.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from notebooks.build import BuildError, header, read_source, tags
from notebooks.parts import split

MARK = "*For the instructor*"
HEADINGS = {  # by the label in a cell
    "Script": "Script",
    "Leave out": "Leave out first",
    "Board": "Board sketch",
    "Guesses": "What people guess",
    "Goes wrong": "Common problems and fixes",
    "Extra": "Optional sections",
    "Background": "Background",
}

_LABEL = re.compile(rf"^\*\*({'|'.join(HEADINGS)})\.\*\*\s*", re.MULTILINE)
_GUESS = re.compile(r"^- \*\*(\w+)\*\* ", re.MULTILINE)
_TASK = re.compile(r"\*\*You will do:\*\* (.*?)\n\n", re.DOTALL)
_GOALS = re.compile(r"\*\*You will learn:?\*\*\n+((?:- .*\n(?:  .*\n)*)+)")
_CHECKED = re.compile(r"\s*<!-- ([\w. ]+) -->\s*$")  # "<!-- 2.1 02a -->" at the end of a goal


@dataclass(frozen=True)
class Goal:
    """A goal of a notebook, and the numbers of the exercises and predictions that check it."""

    text: str
    checks: list[str]


@dataclass(frozen=True)
class Question:
    """A prediction of a notebook: choices, or a number with a unit."""

    text: str
    choices: list[str]
    unit: str


def notes(source: Path) -> dict[str, str]:
    """Return the instructor's text of a notebook by label, in the order of HEADINGS."""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in _cells(source):
        if "instructor" in tags(cell):
            mark, *labeled = _LABEL.split(cell.source)
            if mark.strip() != MARK:
                raise BuildError(
                    f"{source.name}: the cell {cell.source[:40]!r} must begin with {MARK} and a "
                    f"label in bold. The labels are {', '.join(HEADINGS)}."
                )
            for label, text in zip(labeled[::2], labeled[1::2], strict=True):
                found[label].append(text.strip())
    return {label: _join(found[label]) for label in HEADINGS if label in found}


def guessed(guesses: str) -> list[str]:
    """Return the keys of the predictions that the guesses are about."""
    return _GUESS.findall(guesses)


def title(source: Path) -> str:
    """Return the number and the title of a notebook."""
    return _header(source).partition("\n")[0].removeprefix("# ")


def task(source: Path) -> str:
    """Return what learners will do in a notebook."""
    found = _TASK.search(_header(source))
    return " ".join(found[1].split()) if found else ""


def goals(source: Path) -> list[Goal]:
    """Return what learners will learn in a notebook."""
    found = _GOALS.search(_header(source))
    items = re.split(r"^- ", found[1], flags=re.MULTILINE)[1:] if found else []
    return [_goal(" ".join(item.split())) for item in items]


def _goal(item: str) -> Goal:
    text, *checks = _CHECKED.split(item)
    return Goal(text.rstrip(".,;"), checks[0].split() if checks else [])


def questions(source: Path, *, core: bool = False) -> dict[str, Question]:
    """Return the predictions of a notebook, or only those of its core, by key."""
    found = {}
    for cell in split(read_source(source))[0] if core else _cells(source):
        if cell.cell_type == "code" and "cu.predict(" in cell.source:
            nodes = list(ast.walk(ast.parse(cell.source)))
            named = {ast.unparse(n.targets[0]): n.value for n in nodes if isinstance(n, ast.Assign)}
            for node in nodes:
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "cu.predict":
                    key, text = (_value(argument, named) for argument in node.args)
                    more = {one.arg: _value(one.value, named) for one in node.keywords}
                    choices = list(more.get("choices", ()))
                    found[key] = Question(text, choices, more.get("unit", ""))
    return found


def _value(node: ast.expr, named: Mapping[str, ast.expr]) -> Any:
    """Return the value of a literal, a name for a literal, or the list of either."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "list":
        node = node.args[0]
    return ast.literal_eval(named.get(ast.unparse(node), node))


def _join(texts: Sequence[str]) -> str:
    """Join lists to one list, and separate other texts by a blank line."""
    return ("\n" if all(text.startswith("- ") for text in texts) else "\n\n").join(texts)


def _header(source: Path) -> str:
    return header(_cells(source))


@cache
def _cells(source: Path) -> list[NotebookNode]:
    return list(read_source(source).cells)
