"""Selection of notebooks for a short test run, which runs each version of each notebook once.

Most notebooks run both versions in one kernel: each exercise first as handed out and then solved,
like a learner. For the others, the learner version runs headless or in a real browser, and the
solution runs normally or with each long cell interrupted. The full run does everything with all
notebooks, and each version has a separate kernel.
"""

import re
import symtable
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from nbformat import NotebookNode

from notebooks.build import number as number_of

IN_THE_BROWSER = {"02"}
WITHOUT_EXERCISES = {"A", "B"}  # notebooks without exercises, so both versions have the same cells
INTERRUPTED = {"07"}  # notebooks whose cells use workers and locks for a long time
TOGETHER = {"01", "03", "04", "05", "06", "08", "09", "10", "11", "12", "13", "14"}
MANY_WORKERS = {"04", "05", "07", "08", "10"}


def take(
    notebooks: Iterable[Path],
    *,
    only: Iterable[str] = (),
    but: Iterable[str] = (),
    marks: Mapping[str, Sequence[pytest.MarkDecorator]] = {},
) -> pytest.MarkDecorator:
    """Parametrise by `notebook`. A short run takes `only` these numbers, or all `but` these.

    `marks` adds marks to some numbers.
    """
    return pytest.mark.parametrize(
        "notebook",
        [
            pytest.param(path, id=path.stem, marks=[*_marks(number, taken), *marks.get(number, ())])
            for path in notebooks
            for number in [number_of(path)]
            for taken in [number in only if only else number not in but]
        ],
    )


def take_together(notebooks: Iterable[Path]) -> pytest.MarkDecorator:
    """Parametrise by notebooks that run both versions in one kernel in a short run."""
    return pytest.mark.parametrize(
        "notebook",
        [
            pytest.param(
                path, id=path.stem, marks=[*_marks(number_of(path), True), pytest.mark.short]
            )
            for path in notebooks
            if number_of(path) in TOGETHER
        ],
    )


def _marks(number: str, taken: bool) -> list[pytest.MarkDecorator]:
    many = [pytest.mark.many_workers] if number in MANY_WORKERS else []
    return many if taken else [*many, pytest.mark.full]


def both_versions(
    learner: Sequence[NotebookNode], solved: Iterable[NotebookNode]
) -> Iterator[NotebookNode]:
    """Yield the cells of a notebook, each exercise first as handed out and then solved."""
    handed_out = {cell.id: cell for cell in learner}
    exercise: list[NotebookNode] = []
    for cell in solved:
        if exercise or _is_answer(cell, handed_out):
            exercise.append(cell)
        else:
            yield cell
        if exercise and "cu.check(" in cell.source:
            yield from (handed_out[one.id] for one in exercise if one.id in handed_out)
            yield from exercise
            exercise = []
    yield from exercise


def answers_needed(learner: Sequence[NotebookNode], solved: Iterable[NotebookNode]) -> set[str]:
    """Return the names that an answer defines and that cells after its check use."""
    handed_out = {cell.id: cell for cell in learner}
    answers: set[str] = set()
    needed: set[str] = set()
    for cell in solved:
        given, used = _names(cell)
        if _is_answer(cell, handed_out):
            answers |= given
            continue
        if "cu.check(" not in cell.source:
            needed |= used & answers
        answers -= given
    return needed


def _is_answer(cell: NotebookNode, handed_out: dict[str, NotebookNode]) -> bool:
    return cell.id not in handed_out or handed_out[cell.id].source != cell.source


def _names(cell: NotebookNode) -> tuple[set[str], set[str]]:
    """Return the names that a cell defines, without imports, and the names that it uses."""
    code = re.sub(r"^[%!].*$", "", cell.source, flags=re.MULTILINE)
    scopes = [symtable.symtable(code, cell.id, "exec")]
    top = scopes[0].get_symbols()
    given = {symbol.get_name() for symbol in top if symbol.is_assigned()}
    used = {symbol.get_name() for symbol in top if symbol.is_referenced()} - given
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        used |= {s.get_name() for s in scope.get_symbols() if s.is_global() and s.is_referenced()}
    return given, used
