"""Find what a learner has not written yet: the `...` that the exercise left."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from course_utils.paths import SCRATCH


def find_stub(attempt: Any) -> str | None:
    """Name the first unwritten part of `attempt`, or return None if there is none.

    Unwritten is: `...` as a value, also inside a list or dict; a function or a method whose
    body is empty or still holds a `...` as a statement or as a value.
    """
    if attempt is ...:
        return "the answer"
    if isinstance(attempt, list | tuple | dict):
        values = attempt.values() if isinstance(attempt, dict) else attempt
        return "the answer" if any(value is ... for value in values) else None
    if isinstance(attempt, type):
        return _stub_in_class(attempt)
    if inspect.isroutine(attempt):
        return attempt.__name__ if _is_stub(attempt) else None
    return _stub_in_class(type(attempt)) if _is_learners(type(attempt)) else None


def _stub_in_class(kind: type) -> str | None:
    members = vars(kind)
    for name, member in members.items():
        if member is ... or any(map(_is_stub, _functions(member))):
            return f"{kind.__name__}.{name}"
    written = any(callable(m) or not name.startswith("__") for name, m in members.items())
    return None if written else kind.__name__


def _functions(member: Any) -> Iterator[Callable[..., Any]]:
    for function in (member, *(getattr(member, part, None) for part in ("__func__", "fget"))):
        if inspect.isfunction(function):
            yield function


def _is_stub(function: Any) -> bool:
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        definition = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):
        return False  # built in, or a lambda inside an expression: it is there, so it is written
    if not isinstance(definition, ast.FunctionDef):
        return False
    body = definition.body[1:] if ast.get_docstring(definition) is not None else definition.body
    return all(isinstance(line, ast.Pass) for line in body) or any(map(_leaves_out, _own(body)))


def _own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Walk the statements of a body without those of classes in it, where `...` may be meant."""
    for line in body:
        if not isinstance(line, ast.ClassDef):
            yield line
            yield from (node for child in ast.iter_child_nodes(line) for node in ast.walk(child))


def _leaves_out(node: ast.AST) -> bool:
    value = getattr(node, "value", None) if isinstance(node, _WITH_A_VALUE) else None
    return isinstance(value, ast.Constant) and value.value is ...


_WITH_A_VALUE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return, ast.Yield, ast.keyword)


def _is_learners(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__ == "__main__" or SCRATCH in file
