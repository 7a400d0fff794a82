"""Both versions of a notebook in one kernel: each exercise first as handed out and then solved."""

import re
import symtable
from collections.abc import Iterable, Iterator, Sequence

from nbformat import NotebookNode


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
            yield from (handed_out[part.id] for part in exercise if part.id in handed_out)
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
