"""Answers to the exercises, as the notebooks' sources give them: stub, solution, and mutations.

A wrong attempt is the solution with something replaced, beside what the verdict must say of it:

    WRONG: Wrong = {"01.1": [("The mask is upside down", ("< lengths", ">= lengths"))]}

    @pytest.mark.parametrize(("key", "misconception", "changes"), wrong_answers(WRONG))
    def test_a_wrong_answer_is_explained(
        key: str, misconception: str, changes: list[Change], folder: Path
    ) -> None:
        assert_refused(judge(key, folder, *changes), misconception)
"""

import ast
import hashlib
import re
import symtable
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode

from course_utils.teaching.exercise import Verdict, check
from course_utils.teaching.notebook.worker_module import define
from notebooks.build import HERE, for_learner, read_source, with_solutions

Version = Callable[[NotebookNode], NotebookNode]  # for_learner or with_solutions
Change = tuple[str, str]  # what is replaced in the solution, and by what
Wrong = dict[str, list[tuple[Any, ...]]]  # exercise -> (misconception, change, ...)

_MAGIC = "%%worker_module "


def wrong_answers(table: Wrong) -> list[Any]:
    """Return a case for each wrong answer: key, misconception, changes."""
    return [
        pytest.param(key, says, changes, id=f"{key} {says}")
        for key, answers in table.items()
        for says, *changes in answers
    ]


def judge(key: str, folder: Path, *changes: Change, version: Version = with_solutions) -> Verdict:
    """Judge the solution of exercise `key`, such as "01.1", after these changes."""
    return check(key, *attempt(key, folder, *changes, version=version))


def judge_stub(key: str, folder: Path) -> Verdict:
    """Judge what the learner's notebook holds before anything is written."""
    return judge(key, folder, version=for_learner)


def attempt(
    key: str, folder: Path, *changes: Change, version: Version = with_solutions
) -> tuple[Any, ...]:
    """Return what the notebook hands to the check, from a module in `folder` for workers too."""
    source = mutant(solution(key, version), *changes)
    name = f"answer_{hashlib.sha256(f'{folder}{source}'.encode()).hexdigest()[:12]}"
    module = sys.modules.get(name) or define(name, source, folder=folder)
    return tuple(getattr(module, part) for part in _handed_over(key))


def mutant(source: str, *changes: Change) -> str:
    """Return `source` with each old text replaced by the new one, wherever it stands."""
    for old, new in changes:
        assert old in source, f"Nothing to replace: {old!r} is not in\n{source}"
        source = source.replace(old, new)
    return source


def before(line: str, *code: str, by: int = 8) -> Change:
    """Return the change that puts code in front of a line, all indented by so many spaces."""
    return f"{' ' * by}{line}", "\n".join(f"{' ' * by}{one}" for one in (*code, line))


def after(line: str, *code: str, by: int = 8) -> Change:
    """Return the change that puts code behind a whole line, all indented by so many spaces."""
    return f"{' ' * by}{line}\n", "".join(f"{' ' * by}{one}\n" for one in (line, *code))


@cache
def solution(key: str, version: Version = with_solutions) -> str:
    """Return the source of what the check of `key` gets, with the statements that it needs."""
    wanted, parts = set(_handed_over(key)), list[str]()
    for statement in reversed(_statements(key[:2], version)):
        table = symtable.symtable(statement, key, "exec")
        names = table.get_symbols()
        bound = {name.get_name() for name in names if name.is_assigned() or name.is_imported()}
        fills = re.match(r"(\w+)\[", statement)  # tool["line"] = "py-spy"
        if bound & wanted or (fills and fills[1] in wanted):
            wanted = (wanted | set(_reads(table))) - bound
            parts.insert(0, statement)
    return "\n".join(parts)


def _handed_over(key: str) -> list[str]:
    """Return the names that the notebook passes to the check."""
    calls = "\n".join(_statements(key[:2], with_solutions))
    (names,) = re.findall(rf'^cu\.check\("{key}", (.+)\)$', calls, re.MULTILINE)
    return str(names).split(", ")


@cache
def _statements(notebook: str, version: Version) -> list[str]:
    """Return all statements of the cells; what a worker module defines, the notebook has too."""
    (path,) = (HERE / "source").glob(f"{notebook}_*.py")
    cells = [cell.source for cell in version(read_source(path)).cells if cell.cell_type == "code"]
    modules = {cell.split()[1] for cell in cells if cell.startswith(_MAGIC)}
    found = [one for cell in cells for one in _split(re.sub(f"^{_MAGIC}", "# ", cell))]
    return [one for one in found if not (one.startswith("from ") and one.split()[1] in modules)]


def _split(cell: str) -> Iterator[str]:
    lines = cell.splitlines()
    for node in [] if cell.startswith("%") else ast.parse(cell).body:
        first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
        yield "\n".join(lines[first - 1 : node.end_lineno])


def _reads(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that this code, and all code in it, takes from the module."""
    yield from (s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced())
    for inner in table.get_children():
        yield from _reads(inner)


def assert_refused(verdict: Verdict, misconception: str) -> None:
    """Fail unless the verdict is "wrong", names the misconception and says what to do next."""
    assert verdict.status == "wrong", verdict
    assert misconception in verdict.message, verdict
    assert verdict.next_step
