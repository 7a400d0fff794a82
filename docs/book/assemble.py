"""Lay out all that the book is made of, as files for Sphinx to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course_stories.capstone import handed_out, script_with
from course_utils.paths import REPO
from docs.book import guide
from docs.book.api import reference
from docs.book.execute import executed
from docs.book.pages import page
from keepfed.field_guide import entries
from notebooks.build import HERE, number

BOOK = Path(__file__).parent
_PART = re.compile(r"^\{\{ (.+) \}\}$", re.MULTILINE)
_ELSEWHERE = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|notebooks/)[^)]+\)")  # in the checkout
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)


def assembled() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file that the book is made of."""
    readme = (REPO / "README.md").read_text("utf-8")
    yield "index.md", index((BOOK / "index.md").read_text("utf-8"), readme)
    yield "checklist.md", (REPO / "docs/checklist.md").read_text("utf-8")
    yield "troubleshooting.md", (REPO / "docs/troubleshooting.md").read_text("utf-8")
    yield "docs/timeline.svg", (REPO / "docs/timeline.svg").read_text("utf-8")
    yield "api.md", reference()
    names = {number(path): path.stem for path in sorted(HERE.glob("*.ipynb"))}
    links = "".join(f"\n[{called}]: {name}.ipynb" for called, name in names.items())
    yield "glossary.md", (BOOK / "glossary.md").read_text("utf-8") + links
    for entry in entries().values():
        yield f"{guide.FOLDER}/{entry.name}.md", guide.entry_page(entry, names)
    yield "static/field_guide.js", guide.search_data()
    for name in names.values():
        yield f"{name}.ipynb", notebook_page(name)


def notebook_page(name: str) -> str:
    """Return the page of a notebook, as a notebook with outputs."""
    learner = nbformat.read(HERE / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    made = page(executed(HERE / "solutions" / f"{name}.ipynb"), learner)
    if number(Path(name)) == "A":
        guide.fill_in(made)
    if number(Path(name)) == "13":
        _show_script(made)
    text: str = nbformat.writes(made, indent=1)  # type: ignore[no-untyped-call]
    return text


def _show_script(capstone: NotebookNode) -> None:
    """Show the script that notebook 13 writes beside itself, and how it looks mended."""
    shown = {
        "hand_out()": ("The script", handed_out(0)),
        "script_with([])": ("A solution: the script, mended", script_with([])),
    }
    for place, cell in reversed([*enumerate(capstone.cells)]):
        for end, (what, script) in shown.items():
            if cell.cell_type == "code" and end in cell.source:
                text = f"<details><summary>{what}</summary>\n\n```python\n{script}```\n\n</details>"
                shown_cell = new_markdown_cell(text, id=f"{cell.id}-script")  # type: ignore[no-untyped-call]
                capstone.cells.insert(place + 1, shown_cell)


def index(frame: str, readme: str) -> str:
    """Return the first page: a frame, in which `{{ Start }}` is that section of the README."""
    begin, *rest = _SECTION.split(readme)
    sections = {"README": begin, **dict(zip(rest[::2], rest[1::2], strict=True))}
    told = {name: _ELSEWHERE.sub(r"\1", text.strip()) for name, text in sections.items()}
    return _PART.sub(lambda found: told[found[1]], frame).replace("](notebooks/", "](")
