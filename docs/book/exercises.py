"""Exercises that a page of the book can check: numbers and labels.

The feedback comes from the notebook's own check, which runs here for every answer that it knows.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from html import escape
from importlib import import_module
from math import nan
from typing import Any

from course_utils.teaching.exercise import check, judge_modules

ELSEWHERE = (
    "*Only the notebook can check your answer. [Start](index.md#start) says how to open it.*"
)
# the constant with the labels of an answer, in the module of the check
LABELS = {"03.4": "TOOLS", "06.1": "FORMATS", "09.1": "CAUSES", "14.2": "_WORDS"}
LETTERS = {"03.3": "abcdefgh"}  # the answer is a set of some of these
METHODS = {"a flaw": "add", "not a flaw": "discard"}


def with_form(key: str, solved: str, stub: str) -> str:
    """Return an exercise as Markdown: its stub, in a frame that static/exercise.js makes a form.

    `solved` is the cell with the answers of the course and the check, and `stub` the learner's.
    """
    code = f"```ipython3\n{stub}\n```"
    fields = [
        [name, within, [[value, _feedback(key, solved, change)] for value, change in cases.items()]]
        for name, within, cases in _fields(key, solved)
    ]
    if not fields:
        return f"{code}\n\n{ELSEWHERE}"
    data = json.dumps({"right": _feedback(key, solved), "fields": fields})
    return f'<div class="exercise" data-exercise="{escape(data)}">\n\n{code}\n\n</div>'


def _fields(key: str, solved: str) -> Iterator[tuple[str, float, dict[Any, str]]]:
    """Yield each answer: its name, its tolerance, and a statement that assigns each known value.

    None stands for all other numbers.
    """
    module = import_module(judge_modules()[key])
    for number in getattr(module, "NUMBERS", ()):
        cases = {value: f"{number.name} = {value!r}" for value in (number.truth, *number.slips)}
        yield number.name, number.tolerance, {**cases, None: f"{number.name} = nan"}
    labels = getattr(module, LABELS.get(key, ""), ())
    for name, answer in _assigned(solved).items() if labels or key in LETTERS else ():
        if isinstance(answer, dict):
            for part in answer:
                yield part, 0, {label: f"{name}[{part!r}] = {label!r}" for label in labels}
        elif isinstance(answer, set):
            for part in LETTERS[key]:
                cases = {said: f"{name}.{method}({part!r})" for said, method in METHODS.items()}
                yield part, 0, cases
        else:
            yield name, 0, {label: f"{name} = {label!r}" for label in labels}


def _assigned(solved: str, change: str = "") -> dict[str, Any]:
    """Return the answers that the check gets, after one of them was changed."""
    *answers, call = ast.parse(solved).body
    names: dict[str, Any] = {"nan": nan}
    exec(compile(ast.Module(answers, []), "<answers>", "exec"), names)
    exec(change, names)
    check_call: Any = call
    args = [ast.unparse(arg) for arg in check_call.value.args[1:]]
    return {name: names[name] for name in args}


def _feedback(key: str, solved: str, change: str = "") -> str:
    """Return the card of the check, or nothing if a changed answer is still right."""
    verdict = check(key, *_assigned(solved, change).values())
    is_right = change and verdict.status == "right"
    return "" if is_right else str(verdict._repr_mimebundle_()["text/html"])
