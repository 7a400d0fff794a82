"""Questions for guesses, from `cu.predict` in the notebooks and from the decks.

A question in a deck is a block with a key. The key is new, or it is the key of a prediction, such
as 02b. In this case, the block shows the guesses for the prediction. A question has a unit or
choices, or neither:

    :::guess fast-3
    How many times longer is a step?
    unit: times
    choices: yes | no
    :::
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from course_utils.paths import shipped
from course_utils.teaching.exercise import judge_modules
from course_utils.teaching.wall import sentences

_BLOCK = re.compile(r"^:::guess (\S+)\n(.*?)^:::$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"[a-z]+-\d+|\d\d[a-z]")
_FIELD = re.compile(r"\{[^{}]*\}")


class Question(NamedTuple):
    """A question. The answer is a number with a unit, or one of the choices."""

    key: str
    text: str
    unit: str = ""
    choices: tuple[str, ...] = ()


class Course(NamedTuple):
    """Everything that a post to the wall may refer to."""

    questions: Mapping[str, Question]  # in the order of the course
    notebooks: Mapping[str, str]  # titles, by number
    exercises: frozenset[str]
    mistakes: Mapping[str, str]  # sentences, by place in the source: "nb01/ex1_pad_events:41"


def read_course() -> Course:
    """Read the questions, notebooks and exercises of this installation."""
    notebooks, questions = {}, dict[str, Question]()
    for path in sorted(shipped("notebooks").glob("[0-9A-Z]*_*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        number, _, title = cells[0]["source"][0].strip("# \n").partition(" · ")
        notebooks[number] = title
        questions |= {one.key: one for one in _predictions(cells)}
    for path in sorted(shipped("slides").glob("*.md")):
        for key, lines in _BLOCK.findall(path.read_text("utf-8")):
            questions.setdefault(key, deck_question(key, lines.splitlines()))
    home = find_spec("course_utils.exercises")
    mistakes = {
        f"{path.parent.name}/{path.stem}:{line}": _FIELD.sub("…", sentence)
        for folder in (home.submodule_search_locations if home else None) or ()
        for path in Path(folder).rglob("*.py")
        for line, sentence in sentences(path).items()
    }
    return Course(questions, notebooks, frozenset(judge_modules()), mistakes)


def deck_question(key: str, lines: Sequence[str]) -> Question:
    """Return the question of a block in a deck.

    Raises:
        ValueError: If the key or the text is not valid.
    """
    more = dict.fromkeys(("unit", "choices"), "")
    text = []
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name in more:
            more[name] = value.strip()
        else:
            text.append(line.strip())
    if not _KEY.fullmatch(key) or not "".join(text):
        raise ValueError("A guess needs a key such as fast-3, and a question below it.")
    choices = tuple(one.strip() for one in more["choices"].split("|") if one.strip())
    return Question(key, " ".join(text).strip(), more["unit"], choices)


def _predictions(cells: Sequence[Mapping[str, Any]]) -> Iterator[Question]:
    """Yield the question of each `cu.predict` in a notebook."""
    names: dict[str, Any] = {}  # literal values, because choices may be in a variable
    for cell in cells:
        source = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
        with suppress(SyntaxError):  # a cell with a magic
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names[node.targets[0].id] = _literals(node.value, names)
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "cu.predict":
                    key, text = (_literals(one, names)[0] for one in node.args)
                    more = {str(one.arg): _literals(one.value, names) for one in node.keywords}
                    unit = more.get("unit", ("",))[0]
                    yield Question(key, text, unit, more.get("choices", ()))


def _literals(node: ast.expr, names: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of a literal, of a list, or of the keys of a dict."""
    match node:
        case ast.Constant():
            return (str(node.value),)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(keys=parts):
            return tuple(text for part in parts if part for text in _literals(part, names)[:1])
        case ast.Name(id=name):
            return tuple(names.get(name, ()))
        case ast.Call(args=[of]):  # list(CHANGES)
            return _literals(of, names)
    return ()
