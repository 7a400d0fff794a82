"""Check of notebook 10: six pipelines of WebDataset, each with something to repair."""

from __future__ import annotations

import ast
import inspect
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo, wrong
from course_utils.teaching.notebook import explain
from notebooks.exercises.nb10.hidden import Shards
from notebooks.exercises.nb10.printed import PRINTED
from notebooks.exercises.nb10.six import HINTS, JUDGES, Attempt, Fault


@exercise("10.1", title="Repair six snippets", seconds=120)
def repair_six(*attempts: Callable[..., Any]) -> Verdict:
    """Judge six functions that make a pipeline of shards, in the order in which they are given."""
    names = [printed.__name__ for printed in PRINTED]
    given = [getattr(attempt, "__name__", "") for attempt in attempts]
    expect(
        given == names,
        f"The check gets {', '.join(filter(None, given)) or 'no functions'}.",
        f"Hand over the six functions, without parentheses: {', '.join(names)}.",
    )
    as_printed = [
        printed.__name__
        for attempt, printed in zip(attempts, PRINTED, strict=True)
        if same(attempt, printed)
    ]
    if len(as_printed) == len(names):
        return todo("All six are as printed. Change them, run their cells, then this one.")
    faults: dict[str, Fault] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shards = Shards.write(Path(folder))
        for name, attempt, judge in zip(names, attempts, JUDGES, strict=True):
            if fault := _fault(attempt, judge, shards):
                faults[name] = fault
    if faults:
        name, *later = faults
        done = [other for other in names if other not in faults]
        before = f"Right: {', '.join(done)}. " if done else ""
        note = ", still as printed" if name in as_printed else ""
        after = f" To repair after it: {', '.join(later)}." if later else ""
        message = f"{before}`{name}`{note}: {faults[name].misconception}{after}"
        return wrong(message, faults[name].next_step)
    return right(
        "Six pipelines that serve every sample once, in batches that a model takes, and say so "
        "when a shard is broken."
    )


def same(attempt: Callable[..., Any], printed: Callable[..., Any]) -> bool:
    """Tell whether two functions have the same statements, whatever their types and docstrings."""
    try:
        return _statements(attempt) == _statements(printed)
    except (OSError, TypeError, SyntaxError):
        return False  # without a source: somebody wrote it in another way


def _statements(function: Callable[..., Any]) -> list[str]:
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    body = definition.body if isinstance(definition, ast.FunctionDef) else []
    return [
        ast.dump(line)
        for line in body
        if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
    ]


def _fault(
    attempt: Attempt, judge: Callable[[Attempt, Shards], None], shards: Shards
) -> Fault | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            judge(attempt, shards)
        except Fault as fault:
            return fault
        except TimeoutError:
            raise
        except Exception as error:  # whatever it is: the learner's pipeline raised it
            return Fault(f"it stops: {explain(error)}.", HINTS[attempt.__name__])
    return None
