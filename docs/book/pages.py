"""Pages of the book from executed notebooks, with solutions folded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course_utils.teaching.exercise import VERDICT_MIME
from docs.book.exercises import ELSEWHERE, with_form
from notebooks.build import STORED, tags
from notebooks.parts import split

SOLUTION = "A solution"
VERDICT = "The result of the check"

# comments, and text between two of them that is about running the notebook
_COMMENT = re.compile(r"\s*<!-- notebook -->.*?<!-- end -->|[ \t]*<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#", re.MULTILINE)
_CHECK = re.compile(r'cu\.check\(\s*"(\d\d\.\d)"')


def page(solved: NotebookNode, learner: NotebookNode) -> NotebookNode:
    """Return the page of a notebook that was run with its solutions.

    Each exercise appears as in the learner's notebook, with the solution folded below it.
    """
    stubs = {cell.id: cell.source for cell in learner.cells if cell.cell_type == "code"}
    extra = {cell.id for cell in split(solved)[1]}
    made = NotebookNode(solved)  # type: ignore[no-untyped-call]
    made.metadata.language_info = {"name": "python", "pygments_lexer": "ipython3"}
    made.cells = []
    for cell in solved.cells:
        if "instructor" in tags(cell):
            continue
        if cell.cell_type == "markdown":
            made.cells.append(_text(cell, deeper=cell.id in extra))
        else:
            made.cells += _code(cell, stubs.get(cell.id, cell.source))
    return made


def _text(cell: NotebookNode, *, deeper: bool) -> NotebookNode:
    """Return a text without HTML comments. Headings of the Extra part move one level down."""
    text = _COMMENT.sub("", cell.source)
    if deeper:
        parts = _FENCE.split(text)  # every second part is code, in which # starts a comment
        text = "".join(p if i % 2 else _HEADING.sub("##", p) for i, p in enumerate(parts))
    text = text.replace("](../docs/checklist.md)", "](checklist.md)")
    if "solution" in tags(cell):
        text = f"<details><summary>{SOLUTION}</summary>\n\n{text}\n\n</details>"
    return _cell(cell.id, text)


def _code(cell: NotebookNode, stub: str) -> Iterator[NotebookNode]:
    """Yield the cells of the page for one code cell."""
    verdict = any(VERDICT_MIME in out.get("data", {}) for out in cell.outputs)
    if exercise := _CHECK.search(cell.source):
        form = with_form(exercise[1], cell.source, stub) if stub != cell.source else ELSEWHERE
        yield _cell(f"{cell.id}-stub", form)
    elif stub != cell.source:
        yield _cell(f"{cell.id}-stub", f"```ipython3\n{stub}\n```")
    if stub != cell.source or "solution" in tags(cell):
        _fold(cell, "hide-cell", f"{SOLUTION} and its result" if verdict else SOLUTION)
    elif verdict:
        _fold(cell, "hide-output", VERDICT)
    elif cell.source.startswith("cu.predict(") or STORED in tags(cell):
        cell.metadata["tags"] = [*tags(cell), "remove-input"]  # the output is enough
    is_start = "cu.ready(" in cell.source  # its output describes the machine of the book
    cell.outputs = [out for out in cell.outputs if not is_start and not _is_noise(out)]
    for out in cell.outputs:
        out.get("data", {}).pop(VERDICT_MIME, None)
        if out.output_type == "stream":
            out.text = out.text.replace(" Run this cell again.", "")
    yield cell


def _is_noise(out: NotebookNode) -> bool:
    """Return whether an output is a progress bar, or asks to run a cell again."""
    is_bar = out.output_type == "stream" and out.name == "stderr" and "it/s]" in out.text
    return bool(is_bar or "run this cell again" in out.get("data", {}).get("text/html", ""))


def _fold(cell: NotebookNode, tag: str, summary: str) -> None:
    cell.metadata["tags"] = [*tags(cell), tag]
    cell.metadata["mystnb"] = {"code_prompt_show": summary, "code_prompt_hide": summary}


def _cell(called: str, text: str) -> NotebookNode:
    made: NotebookNode = new_markdown_cell(text, id=called)  # type: ignore[no-untyped-call]
    return made
