"""Collect the instructor's cells of the notebooks into a guide for teaching the course.

    python -m slides.instructor.collect           write slides/INSTRUCTOR.md
    python -m slides.instructor.collect --check   exit 1 if INSTRUCTOR.md is not up to date

The text about a notebook is in its cells with the tag "instructor". Such a cell begins with MARK.
Each part of it begins with a label in bold, one of HEADINGS. The rest is frame.md, with the fields
`{days}` for the timetables, `{room}` for the memory budget, `{demos}` for the demos of the lectures
and their notebooks, and `{pages}` for the pages of the notebooks.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

from nbformat import NotebookNode

from course_stories.lecture.programs import DEMOS
from course_utils.paths import REPO
from notebooks.build import HERE as NOTEBOOKS
from notebooks.build import BuildError, number, parts, read_source, sources, tags
from slides.instructor.room import budget
from slides.instructor.schedule import days

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / "INSTRUCTOR.md"
MARK = "*For the instructor*"
HEADINGS = {  # by the label in a cell
    "Script": "Script",
    "Board": "Board sketch",
    "Guesses": "What people guess",
    "Goes wrong": "Common problems and fixes",
    "Extra": "Optional sections",
    "Background": "Background",
}

_LABEL = re.compile(rf"^\*\*({'|'.join(HEADINGS)})\.\*\*\s*", re.MULTILINE)
_MINUTES = re.compile(r"^- \*(\d+) min\* ", re.MULTILINE)
_GUESS = re.compile(r"^- \*\*(\w+)\*\* ", re.MULTILINE)
_NEW_PAGE = '<div style="page-break-before: always"></div>'


def notes(source: Path) -> dict[str, str]:
    """Return the instructor's text of a notebook by label, in the order of HEADINGS."""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in _cells(source):
        if "instructor" in tags(cell):
            mark, *labelled = _LABEL.split(cell.source)
            if mark.strip() != MARK:
                raise BuildError(
                    f"{source.name}: the cell {cell.source[:40]!r} must begin with {MARK} and a "
                    f"label in bold. The labels are {', '.join(HEADINGS)}."
                )
            for label, text in zip(labelled[::2], labelled[1::2], strict=True):
                found[label].append(text.strip())
    return {label: _join(found[label]) for label in HEADINGS if label in found}


def script_minutes(script: str) -> list[int]:
    """Return the minutes of each item of a script."""
    return [int(minutes) for minutes in _MINUTES.findall(script)]


def guessed(guesses: str) -> list[str]:
    """Return the keys of the predictions that the guesses are about."""
    return _GUESS.findall(guesses)


def questions(source: Path) -> dict[str, str]:
    """Return the question of each prediction of a notebook."""
    found = {}
    for cell in _cells(source):
        if cell.cell_type == "code" and "cu.predict(" in cell.source:
            nodes = list(ast.walk(ast.parse(cell.source)))
            named = {ast.unparse(n.targets[0]): n.value for n in nodes if isinstance(n, ast.Assign)}
            for node in nodes:
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "cu.predict":
                    key, question = node.args
                    question = named.get(ast.unparse(question), question)
                    found[ast.literal_eval(key)] = ast.literal_eval(question)
    return found


def title(source: Path) -> str:
    """Return the number and the title of a notebook."""
    return str(_cells(source)[0].source).partition("\n")[0].removeprefix("# ")


def page(source: Path) -> Iterator[str]:
    """Yield the paragraphs of a notebook's page."""
    core, extra = parts(source)
    more = f", the optional sections {extra.minutes} ({extra})" if extra.words else ""
    solved = f"../notebooks/solutions/{source.stem}.ipynb"
    yield _NEW_PAGE
    yield f"## {title(source)}"
    yield f"The core takes {core.minutes} minutes ({core}){more}. [The solved notebook]({solved})."
    for label, text in notes(source).items():
        yield f"### {HEADINGS[label]}"
        if label == "Script":
            text = _on_the_clock(text)
        elif label == "Guesses":
            for key, question in questions(source).items():
                text = text.replace(f"- **{key}** ", f"- **{key}** *{question}* ")
        yield text


def demos(files: Sequence[Path]) -> Iterator[str]:
    """Yield a table of the demos, their questions, and the notebooks that show them."""
    scripts = {number(path): " ".join(notes(path)["Script"].split()) for path in files}
    yield "| Demo | Question | Notebook |"
    yield "|---|---|---|"
    for name, question in DEMOS.items():
        shown = [where for where, script in scripts.items() if f"`course demo {name}`" in script]
        yield f"| `{name}` | {question} | {', '.join(shown)} |"


def collect() -> str:
    """Return the text of INSTRUCTOR.md."""
    files = sources(NOTEBOOKS / "source")
    counted = {number(path): parts(path) for path in files}
    titles = {number(path): title(path) for path in files}
    readme = (REPO / "README.md").read_text("utf-8")
    text = (HERE / "frame.md").read_text("utf-8")
    for name, block in {
        "days": "\n".join(days(readme, counted, titles)),
        "room": "\n".join(budget()),
        "demos": "\n".join(demos(files)),
        "pages": "\n\n".join(paragraph for path in files for paragraph in page(path)),
    }.items():
        text = text.replace(f"{{{name}}}", block)
    return text


def _join(texts: Sequence[str]) -> str:
    """Join lists to one list, and separate other texts by a blank line."""
    return ("\n" if all(text.startswith("- ") for text in texts) else "\n\n").join(texts)


@cache
def _cells(source: Path) -> list[NotebookNode]:
    return list(read_source(source).cells)


def _on_the_clock(script: str) -> str:
    """Replace the duration of each item of a script by its start and end minute."""
    ends = [0, *accumulate(script_minutes(script))]
    spans = iter(pairwise(ends))
    return _MINUTES.sub(lambda _: "- {}–{} min: ".format(*next(spans)), script)


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check INSTRUCTOR.md, and return the exit status."""
    only_check = "--check" in (sys.argv[1:] if argv is None else argv)
    try:
        text = collect()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    if not only_check:
        BUILT.write_text(text, "utf-8", newline="\n")
    elif not BUILT.exists() or BUILT.read_text("utf-8") != text:
        print(f"{BUILT.name} is not up to date. Run `make notebooks`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
