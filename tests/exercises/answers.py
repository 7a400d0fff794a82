"""What the tests of all checks share: the answers in a notebook's source, and what a refusal is."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course_utils.teaching.exercise import Verdict
from course_utils.teaching.notebook.worker_module import define
from notebooks.build import HERE, read_source

Version = Callable[[NotebookNode], NotebookNode]  # for_learner or with_solutions


def answer(notebook: str, name: str, version: Version, folder: Path, *, given: str = "pass") -> Any:
    """Return the function or class `name` as it stands in a cell of `notebook`.

    Args:
        notebook: number, such as "01".
        name: what the learner is to write.
        version: the stub or the solution.
        folder: where the cell becomes a module that workers can import.
        given: what earlier cells of the notebook provide.
    """
    module = f"{version.__name__}_{notebook}_{name.lower()}"
    defined = define(module, f"{given}\n{code(notebook, name, version)}", folder=folder)
    return getattr(defined, name)


def code(notebook: str, name: str, version: Version) -> str:
    """Return the cell of `notebook` that defines `name`, up to the end of the definition."""
    (source,) = (HERE / "source").glob(f"{notebook}_*.py")
    for cell in version(read_source(source)).cells:
        if cell.cell_type != "code" or name not in cell.source:
            continue
        lines = cell.source.splitlines()[cell.source.startswith("%%worker_module") :]
        for node in ast.parse("\n".join(lines)).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
                return "\n".join(lines[: node.end_lineno])
    raise LookupError(f"Notebook {notebook} defines no {name}.")


def assert_refused(verdict: Verdict, misconception: str) -> None:
    """Fail unless the verdict is "wrong", names the misconception and says what to do next."""
    assert verdict.status == "wrong", verdict
    assert misconception in verdict.message, verdict
    assert verdict.next_step
