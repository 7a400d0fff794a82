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

from course_utils.teaching.checks.nb10_hidden import Shards
from course_utils.teaching.checks.nb10_printed import PRINTED
from course_utils.teaching.checks.nb10_six import HINTS, JUDGES, Attempt, Say
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.teaching.explain import explain


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
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shards = Shards.write(Path(folder))
        for number, (attempt, judge) in enumerate(zip(attempts, JUDGES, strict=True)):
            before = f"{', '.join(names[:number])}: right. " if number else ""
            note = " It is still as printed." if attempt.__name__ in as_printed else ""
            _judge_one(attempt, judge, shards, f"{before}`{attempt.__name__}`:{note}")
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


def _judge_one(
    attempt: Attempt, judge: Callable[[Attempt, Shards, Say], None], shards: Shards, before: str
) -> None:
    def say(holds: object, misconception: str, next_step: str) -> None:
        expect(holds, f"{before} {misconception}", next_step)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            judge(attempt, shards, say)
        except (TimeoutError, KeyboardInterrupt):
            raise
        except (RuntimeError, TypeError, ValueError, AssertionError, LookupError, OSError) as error:
            say(False, f"it stops: {explain(error)}.", HINTS[attempt.__name__])
