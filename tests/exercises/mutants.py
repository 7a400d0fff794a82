"""Mutants of the solutions: small changes, each of which should make the answer wrong.

    python -m tests.exercises.mutants 04 05.1    judge their mutants, print the survivors

A mutant lacks a statement, compares or computes with a neighbouring operator, is off by one, swaps
two arguments, or inverts a condition. If a judge accepts a mutant, either the judge is too weak or
the mutant is equivalent to the solution; `survivors.toml` explains each of the second kind.
"""

import ast
import copy
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from course_utils.teaching.exercise import Verdict, check
from course_utils.teaching.notebook.worker_module import define
from tests.exercises.solutions import _handed_over, solution

SURVIVORS = Path(__file__).with_name("survivors.toml")
MOST = 40  # mutants of one exercise, spread evenly over its solution

_NEIGHBOURS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Delete, ast.Yield)


def mutants(key: str) -> Iterator[tuple[str, str]]:
    """Yield a description and the source of each mutant of a solution, such as that of "04.1"."""
    tree, wanted = ast.parse(solution(key)), {*_handed_over(key)}
    found = [
        change
        for number, top in enumerate(tree.body)
        if wanted & _bound(top) and isinstance(top, ast.FunctionDef | ast.ClassDef)
        for change in _changes(tree, number)
    ]
    step = max(1, -(-len(found) // MOST))
    yield from found[::step]


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _changes(tree: ast.Module, top: int) -> Iterator[tuple[str, str]]:
    for number, node in enumerate(ast.walk(tree.body[top])):
        for what, change in _operators(node):
            changed = copy.deepcopy(tree)
            twin = [*ast.walk(changed.body[top])][number]
            change(twin)
            yield f"line {getattr(node, 'lineno', 0)}: {what}", ast.unparse(changed)


def _operators(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield what to change in a node, in words, and the function that changes its twin."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        for number, one in enumerate(block if isinstance(block, list) else ()):
            if isinstance(one, _SIMPLE) and not _is_docstring(one):
                text = ast.unparse(one).splitlines()[0][:60]
                yield f"without `{text}`", partial(_drop, field, number)
    operator = node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)
    if new := _NEIGHBOURS.get(type(operator)):
        yield f"`{_text(node)}` with {new.__name__}", partial(_operate, new)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield f"{node.value} + 1", lambda twin: setattr(twin, "value", twin.value + 1)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield f"not {node.value}", lambda twin: setattr(twin, "value", not twin.value)
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Constant):
        yield f"inverted `{_text(node.test)}`", _invert
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not _starred(node.args[:2]):
        yield f"`{_text(node)}` with swapped arguments", _swap


def _text(node: ast.AST) -> str:
    return ast.unparse(node)[:60]


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _starred(nodes: list[ast.expr]) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)


def _drop(field: str, number: int, twin: ast.AST) -> None:
    getattr(twin, field)[number] = ast.Pass()


def _operate(new: type, twin: Any) -> None:
    if isinstance(twin, ast.Compare):
        twin.ops[0] = new()
    else:
        twin.op = new()


def _invert(twin: Any) -> None:
    twin.test = ast.UnaryOp(ast.Not(), twin.test)


def _swap(twin: ast.Call) -> None:
    twin.args[:2] = twin.args[1], twin.args[0]


def judge_source(key: str, source: str, folder: Path) -> Verdict | None:
    """Judge an answer given as source; None if the source does not even run."""
    try:
        module = define(f"mutant_{abs(hash(source))}", source, folder=folder)
    except Exception:  # a mutant that cannot be imported is dead
        return None
    return check(key, *(getattr(module, name) for name in _handed_over(key)))


def survivors(key: str, folder: Path) -> Iterator[str]:
    """Yield the descriptions of the mutants of an exercise that its judge accepts."""
    for what, source in mutants(key):
        verdict = judge_source(key, source, folder)
        if verdict is not None and verdict.status == "right":
            yield what


def explained() -> dict[str, dict[str, str]]:
    """Return the reason of each accepted mutant, by exercise and description."""
    return tomllib.loads(SURVIVORS.read_text("utf-8"))


def main(wanted: list[str]) -> None:
    """Print the survivors of the named exercises."""
    from tests.exercises.test_attempts import HERE_JUDGED, _hurry

    for key in HERE_JUDGED:
        if not any(key.startswith(one) for one in wanted):
            continue
        with tempfile.TemporaryDirectory() as folder, _hurry():
            count = sum(1 for _ in mutants(key))
            known = explained().get(key, {})
            found = [what for what in survivors(key, Path(folder)) if what not in known]
        print(f"{key}: {count} mutants, {len(known)} explained, {len(found)} unexplained")
        print(*(f"  {what}" for what in found), sep="\n", end="\n" if found else "", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
