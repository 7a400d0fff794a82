"""The pages of the book, as files for Sphinx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course_utils.paths import REPO
from course_utils.stories.capstone import handed_out, script_with
from course_utils.teaching.explorer import explorer
from docs.book import guide
from docs.book.api import reference
from docs.book.execute import with_outputs
from docs.book.pages import page
from docs.publish import address
from keepfed.field_guide import entries
from notebooks.build import HERE, ON_COLAB, number
from slides.instructor.pages import teacher_pages

BOOK = Path(__file__).parent
_PART = re.compile(r"^\{\{ (.+) \}\}$", re.MULTILINE)
# links of the README to files that are not in the book
_ELSEWHERE = re.compile(
    r"(?<!!)\[([^\]]+)\]\((?!https?:|notebooks/|docs/(?:commands|troubleshooting)\.md)[^)]+\)"
)
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_STILL = re.compile(r"!\[[^\]]*\]\(docs/timeline\.svg\)")
QUESTION = "Why does this GPU wait?"
ABOVE = f"""<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui}}</style>
<h1>{QUESTION}</h1><p>In this picture, red is time in which the GPU waits for data. You pay for this
time, too. Remove the red with the switches. This page belongs to the course <em>Fast Data
Loaders</em>. It needs no network, so you can mail it.</p>"""


def assembled() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file of the book."""
    readme = (REPO / "README.md").read_text("utf-8")
    first, box = index((BOOK / "index.md").read_text("utf-8"), readme), explorer()
    picture = f"```{{raw}} html\n{box.to_fragment(module=False)}\n```"
    yield "index.md", _STILL.sub(lambda _: picture, first)
    yield "extra/explorer.html", box.to_html(QUESTION, above=ABOVE)
    for name in ("checklist", "commands", "troubleshooting"):
        yield f"{name}.md", (REPO / f"docs/{name}.md").read_text("utf-8")
    yield "api.md", reference()
    names = {number(path): path.stem for path in sorted(HERE.glob("*.ipynb"))}
    links = "".join(f"\n[{called}]: {name}.ipynb" for called, name in names.items())
    yield "glossary.md", (BOOK / "glossary.md").read_text("utf-8") + links
    yield f"{guide.FOLDER}/index.md", guide.front_page()
    for entry in entries().values():
        yield f"{guide.FOLDER}/{entry.name}.md", guide.entry_page(entry, names)
    yield "static/field_guide.js", guide.search_data()
    for name in names.values():
        yield f"{name}.ipynb", notebook_page(name)
        yield f"extra/notebooks/{name}.ipynb", (HERE / f"{name}.ipynb").read_text("utf-8")
    yield from teacher_pages()


def notebook_page(name: str) -> str:
    """Return the page of a notebook, as a notebook with outputs."""
    learner = nbformat.read(HERE / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    made = page(with_outputs(HERE / "solutions" / f"{name}.ipynb"), learner)
    if number(Path(name)) in ON_COLAB:
        title, _, rest = made.cells[0].source.partition("\n")
        made.cells[0].source = f"{title}\n\n{colab_badge(name)}\n{rest}"
    if number(Path(name)) == "13":
        _show_script(made)
    text: str = nbformat.writes(made, indent=1)  # type: ignore[no-untyped-call]
    return text


def colab_badge(name: str) -> str:
    """Return a link that opens a notebook in Colab, or "" if Colab cannot open it."""
    link = address().colab(name)
    return f'<p><a class="colab" href="{link}">Open in Colab</a></p>\n' if link else ""


def _show_script(capstone: NotebookNode) -> None:
    """Add the script that notebook 13 creates, and the same script without its faults."""
    shown = {
        "hand_out()": ("The script", handed_out(0)),
        "script_with([])": ("A solution: the repaired script", script_with([])),
    }
    for place, cell in reversed([*enumerate(capstone.cells)]):
        for end, (what, script) in shown.items():
            if cell.cell_type == "code" and end in cell.source:
                text = f"<details><summary>{what}</summary>\n\n```python\n{script}```\n\n</details>"
                shown_cell = new_markdown_cell(text, id=f"{cell.id}-script")  # type: ignore[no-untyped-call]
                capstone.cells.insert(place + 1, shown_cell)


def index(frame: str, readme: str) -> str:
    """Return the first page. In `frame`, `{{ Start }}` stands for that section of the README."""
    begin, *rest = _SECTION.split(readme)
    sections = {"README": begin, **dict(zip(rest[::2], rest[1::2], strict=True))}
    texts = {name: _ELSEWHERE.sub(r"\1", text.strip()) for name, text in sections.items()}
    page = _PART.sub(lambda found: texts[found[1]], frame)
    if not colab_badge(""):
        page = re.sub(r"^- .*\*\*Open in Colab\*\*.*\n", "", page, flags=re.MULTILINE)
    page = re.sub(r"^\*\*\[Read it now\]\(\S+\)\*\* · ", "", page, flags=re.MULTILINE)
    return re.sub(r"\]\((?:notebooks|docs)/(?=\S+\.(?:ipynb|md)\))", "](", page)
