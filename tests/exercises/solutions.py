"""Answers to the exercises: the stub, the solution, and attempts/NN.diff, what else learners write.

An attempt is the solution with some text replaced everywhere, and words of the verdict:

    @@ 01.1 @@ upside down
    - < lengths
    + >= lengths

It is wrong, and the verdict says those words, unless it is `right`. It may be `slow`, run only in
the `full` run, need `fork`, or build on a right one (`from`). Lines after the first are indented
as the first is in the solution.
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

_MAGIC = "%%worker_module "
_ATTEMPT = re.compile(
    r"^@@ (\S+)((?: right| slow| full| fork)*)(?: from (.+))? @@ (.+)\n((?:[-+].*\n)+)",
    re.MULTILINE,
)
_CHANGE = re.compile(r"((?:^-.*\n)+)((?:^\+.*\n)+)", re.MULTILINE)
_LONG = {"05.3", "09.2", "11.1"}  # whose judges take half a second
_MARKS = {
    "slow": pytest.mark.slow,
    "full": pytest.mark.full,  # what others show too
    "fork": pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there"),
}


def attempts(*, right: bool) -> list[Any]:
    """Return the right or the wrong attempts as cases: key, words, changes."""
    changes: dict[tuple[str, str], list[Change]] = {}
    cases = []
    for path in sorted(Path(__file__).with_name("attempts").glob("*.diff")):
        for key, flags, base, words, body in _ATTEMPT.findall(path.read_text("utf-8")):
            own = [(_text(old), _text(new)) for old, new in _CHANGE.findall(body)]
            changes[key, words] = [*changes.get((key, base), []), *own]
            marks = [_MARKS[flag] for flag in flags.split() if flag != "right"]
            marks += [pytest.mark.slow] * (key in _LONG)
            if ("right" in flags) == right:
                case = key, words, changes[key, words]
                cases.append(pytest.param(*case, marks=marks, id=f"{key} {words}"))
    return cases


def _text(lines: str) -> str:
    return "\n".join(line[2:] for line in lines.splitlines())


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
    """Return `source` with each old text replaced by the new one everywhere."""
    for change in changes:
        first = re.escape(change[0].partition("\n")[0])
        place = re.search(f"^( *).*?{first}", source, re.MULTILINE)
        assert place, f"Nothing to replace: {change[0]!r} is not in\n{source}"
        old, new = (text.replace("\n", f"\n{place[1]}") for text in change)
        assert old in source, f"Nothing to replace: {old!r} is not in\n{source}"
        source = source.replace(old, new)
    return source


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
