"""Questions for guesses, from `cu.predict` in the notebooks and from the decks.

A question in a deck is a block with a key. The key is new, or it is the key of a prediction, such
as 02b. In this case, the block shows the guesses for the prediction. A question has a unit or
choices, or neither. `title: A longer queue` is the title of its slide:

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
from typing import Any, NamedTuple

from course_utils.paths import shipped

_BLOCK = re.compile(r"^:::guess (\S+)\n(.*?)^:::$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"[a-z]+-\d+|\d\d[a-z]")


class Question(NamedTuple):
    """A question. The answer is a number with a unit, or one of the choices."""

    key: str
    text: str
    unit: str = ""
    choices: tuple[str, ...] = ()


def read_course() -> tuple[dict[str, Question], dict[str, str]]:
    """Return the questions by key, in the order of the course, and the titles of the notebooks."""
    titles, questions = dict[str, str](), dict[str, Question]()
    for path in sorted(shipped("notebooks").glob("[0-9A-Z]*_*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        number, _, titles[number] = cells[0]["source"][0].strip("# \n").partition(" · ")
        questions |= {question.key: question for question in _predictions(cells)}
    for path in sorted(shipped("slides").glob("*.md")):
        for key, lines in _BLOCK.findall(path.read_text("utf-8")):
            questions.setdefault(key, deck_question(key, lines.splitlines()))
    return questions, titles


def deck_question(key: str, lines: Sequence[str]) -> Question:
    """Return the question of a block in a deck.

    Raises:
        ValueError: If the key or the text is not valid.
    """
    pairs = [line.partition(":") for line in lines]
    more = {a: b.strip() for a, _, b in pairs if a in ("unit", "choices", "title")}
    text = " ".join(line.strip() for line in lines if line.partition(":")[0] not in more)
    if not _KEY.fullmatch(key) or not text:
        raise ValueError("A guess needs a key such as fast-3, and a question below it.")
    choices = [choice.strip() for choice in more.get("choices", "").split("|")]
    return Question(key, text.strip(), more.get("unit", ""), tuple(filter(None, choices)))


def _predictions(cells: Sequence[Mapping[str, Any]]) -> Iterator[Question]:
    """Yield the question of each `cu.predict` in a notebook."""
    names: dict[str, tuple[str, ...]] = {}  # literal values, because choices may be in a variable
    for cell in cells:
        source = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
        with suppress(SyntaxError):  # a cell with a magic
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names[node.targets[0].id] = _literals(node.value, names)
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "cu.predict":
                    (key,), (text,) = (_literals(argument, names) for argument in node.args)
                    more = {word.arg: _literals(word.value, names) for word in node.keywords}
                    (unit,) = more.get("unit", ("",))
                    yield Question(key, text, unit, more.get("choices", ()))


def _literals(node: ast.expr, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the texts of a literal, of a list, or of the keys of a dict."""
    match node:
        case ast.Constant():
            return (str(node.value),)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(keys=parts):
            return tuple(text for part in parts if part for text in _literals(part, names)[:1])
        case ast.Name(id=name):
            return names.get(name, ())
        case ast.Call(args=[of]):  # list(CHANGES)
            return _literals(of, names)
    return ()
