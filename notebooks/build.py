"""Build the notebooks from their sources: one for the learner, one with the solutions.

    python -m notebooks.build            write them
    python -m notebooks.build --check    write nothing; exit 1 if one is out of step with its source
    python -m notebooks.build --minutes  write nothing; print words and minutes, core and extra

A source is a script in the percent format. In the learner's version a block between
`### BEGIN SOLUTION` and `### END SOLUTION` becomes `...`, and so does the value in a line that ends
with `### SOLUTION`. Cells with the tag "solution" or "instructor" go to the solutions only. A cell
with the tag "stored" is run by the build, and the learner's version keeps its picture, which works
before a kernel has started. The build puts the minutes of a notebook where the source says
`{minutes}`.

A source is called NN_verb_topic.py; an appendix has a letter for its number, A_verb_topic.py.
"""

import argparse
import ast
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import takewhile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

from docs.publish import address
from keepfed import palette
from notebooks.parts import Part, announced, part, split

HERE = Path(__file__).resolve().parent
NOT_FOR_LEARNERS = {"solution", "instructor"}
STORED = "stored"
STAGES = {  # of the pipeline, in the colors of the timeline
    "read": palette.READ,
    "decode": palette.DECODE,
    "collate": palette.COLLATE,
    "transfer": palette.TRANSFER,
    "compute": palette.COMPUTE,
}
COLAB = """\
# On Google Colab this installs the course, which takes a minute; elsewhere it does nothing.
import importlib.util
import sys

if "google.colab" in sys.modules:
    %pip install -q {requirement}
    %env COURSE_SIZE=S
    if importlib.util.find_spec("keepfed") is None:
        sys.exit("The course could not be installed: pip says why. Run this cell again later.")\
"""
ON_COLAB = ("00", "01", "02", "03", "04", "05", "09")  # tested with the versions of Colab

_BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION\n(?P<body>.*?)^[ \t]*### END SOLUTION[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_BLOCK_MARK = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
_LINE = re.compile(
    r"^(?P<head>[^#\n]*?(?:(?<![=!<>:])=(?!=)|\breturn\b) *)(?P<value>[^#\n]*?)(?P<comma>,?) *"
    r"### SOLUTION[ \t]*$",
    re.MULTILINE,
)
_LINE_MARK = re.compile(r" *### SOLUTION[ \t]*$", re.MULTILINE)
_AUTHORS_MARK = re.compile(r"[ \t]*<!-- (?!notebook -->|end -->).*?-->")
_HERE = re.compile(r"\{here: (.+?)\}")
_ANY_MARK = re.compile(r"### *(?:BEGIN |END )?SOLUTION")


class BuildError(Exception):
    """A source that cannot be built; the message names it and the next step."""


def sources(folder: Path) -> list[Path]:
    """Return the sources in a folder: the notebooks by number, then the appendices."""
    return sorted([*folder.glob("[0-9][0-9]_*.py"), *folder.glob("[A-Z]_*.py")])


def number(path: Path) -> str:
    """Return the number of a source or a notebook, such as "05", or the letter of an appendix."""
    return path.stem.partition("_")[0]


def read_source(path: Path) -> NotebookNode:
    """Return the source as a notebook with ids and metadata that depend on the source alone."""
    notebook: NotebookNode = jupytext.read(path, fmt="py:percent")
    _give_ids(notebook, path.stem)
    for cell in notebook.cells:
        kept = {name: cell.metadata[name] for name in ("jupyter", "tags") if name in cell.metadata}
        cell.metadata = NotebookNode(kept)  # type: ignore[no-untyped-call]
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata = NotebookNode(  # type: ignore[no-untyped-call]
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
        course={"version": _course_version()},
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def for_learner(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook with `...` where the solutions were."""
    learner = deepcopy(notebook)
    learner.cells = [c for c in learner.cells if not NOT_FOR_LEARNERS & set(tags(c))]
    for cell in learner.cells:
        if cell.cell_type == "code":
            cell.source = _LINE.sub(_line_stub, _BLOCK.sub(_block_stub, cell.source))
    return learner


def with_solutions(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook without the marks around its solutions."""
    solved = deepcopy(notebook)
    for cell in solved.cells:
        if cell.cell_type == "code":
            cell.source = _LINE_MARK.sub("", _BLOCK_MARK.sub("", cell.source)).rstrip("\n")
    return solved


def tags(cell: NotebookNode) -> list[str]:
    """Return the tags of a cell."""
    return list(cell.metadata.get("tags", ()))


def header(cells: Iterable[NotebookNode]) -> str:
    """Return the text of the first cells. A stored picture may be between them."""
    first = takewhile(lambda cell: cell.cell_type == "markdown" or STORED in tags(cell), cells)
    return "\n\n".join(cell.source for cell in first if cell.cell_type == "markdown")


def build(source: Path, out: Path) -> dict[Path, str]:
    """Return the text of every notebook that the sources in `source` make in `out`."""
    built = {}
    for path in sources(source):
        notebook, minutes = read_source(path), announced(*parts(path))
        versions = {out: for_learner(notebook), out / "solutions": with_solutions(notebook)}
        for folder, version in versions.items():
            _check_marks(path, version)
            for cell in version.cells:
                if cell.cell_type == "markdown":
                    cell.source = _for_reader(cell.source, minutes)
            for cell in split(version)[1]:
                cell.metadata["tags"] = [*tags(cell), "extra"]
            if folder == out:
                for cell in version.cells:
                    if STORED in tags(cell):
                        cell.outputs = [_picture(cell.source)]
                version.cells[1:1] = _colab_cell(path.stem)
            nbformat.validate(version)
            text: str = nbformat.writes(version, indent=1)  # type: ignore[no-untyped-call]
            built[folder / f"{path.stem}.ipynb"] = text + "\n"
    return built


def _for_reader(text: str, minutes: str) -> str:
    """Return the text of a cell without the marks of its author, and with what the build knows."""
    text = _AUTHORS_MARK.sub("", text).replace("{minutes}", minutes)
    return _HERE.sub(lambda found: _where(found[1].split(", ")), text)


def _where(stages: Sequence[str]) -> str:
    """Return the line that shows at which stages of the pipeline a notebook is."""
    if unknown := {*stages} - {*STAGES}:
        raise BuildError(f"{{here: {', '.join(unknown)}}}: the stages are {', '.join(STAGES)}.")
    shown = (
        f'<span style="color:{color}">■</span> **{stage}**' if stage in stages else stage
        for stage, color in STAGES.items()
    )
    return f"You are here: {' → '.join(shown)}"


def _picture(code: str) -> NotebookNode:
    """Run a cell and return the timeline that it shows, as a page that needs no kernel."""
    *before, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {}
    exec(compile(ast.Module(before, []), "<stored>", "exec"), names)
    shown = eval(compile(ast.Expression(last.value), "<stored>", "eval"), names)
    data = {"text/html": shown.to_fragment(), "text/plain": shown.picture.sentence}
    made: NotebookNode = nbformat.v4.new_output("display_data", data)  # type: ignore[no-untyped-call]
    return made


def _colab_cell(name: str) -> list[NotebookNode]:
    """Return the cell that installs the course on Colab, if the project has an address.

    `course lab` leaves it out.
    """
    if not address().repository:
        return []
    extra = "colab" if name.partition("_")[0] in ON_COLAB else "colab,later"
    code = COLAB.format(requirement=address().course(extra))
    cell: NotebookNode = nbformat.v4.new_code_cell(code)  # type: ignore[no-untyped-call]
    cell.id = hashlib.sha256(f"{name} on Colab".encode()).hexdigest()[:8]
    cell.metadata["tags"] = ["colab"]
    return [cell]


def parts(path: Path) -> list[Part]:
    """Return what a learner reads and does in the core of a source, and in what is extra."""
    return [part(cells) for cells in split(for_learner(read_source(path)))]


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check, and return the exit status."""
    parser = argparse.ArgumentParser(description="Build the notebooks from notebooks/source.")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("--minutes", action="store_true", help="write nothing, count")
    parser.add_argument("--source", type=Path, default=HERE / "source", help="folder of sources")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the notebooks")
    args = parser.parse_args(argv)
    if args.minutes:
        print(*_minutes(args.source), sep="\n")
        return 0
    try:
        built = build(args.source, args.out)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    if args.check:
        differences = list(_differences(built, args.out))
        print(*differences, sep="\n", end="\n" if differences else "", file=sys.stderr)
        return 1 if differences else 0
    for path, text in built.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
    print(f"{len(built)} notebooks in {args.out}")
    return 0


def _minutes(source: Path) -> Iterator[str]:
    """Yield a table: words, lines and minutes of each notebook, core and extra."""
    yield "   core: words lines reading + exercises   extra: words lines reading + exercises"
    for path in sources(source):
        columns = (f"{p.words:8} {p.lines:5} {p!s:>10} = {p.minutes:2} min" for p in parts(path))
        yield "   ".join([f"{number(path):2}", *columns])


def _differences(built: dict[Path, str], out: Path) -> Iterator[str]:
    for path, text in built.items():
        if not path.exists() or _comparable(path.read_text("utf-8")) != _comparable(text):
            yield f"{path.relative_to(out)} is out of step with its source: run `make notebooks`."
    for path in sorted([*out.glob("*.ipynb"), *out.glob("solutions/*.ipynb")]):
        if path not in built:
            yield f"{path.relative_to(out)} has no source: delete it, or write its source."


def _comparable(text: str) -> NotebookNode:
    """Return the notebook without stored pictures, whose bytes differ between versions of zlib."""
    notebook: NotebookNode = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if STORED in tags(cell):
            cell.outputs = []
    return notebook


def _give_ids(notebook: NotebookNode, stem: str) -> None:
    """Name each cell after its own text, so that an edit changes no other cell's id."""
    seen: Counter[str] = Counter()
    for cell in notebook.cells:
        text = f"{stem}|{cell.cell_type}|{cell.source}"
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        seen[name] += 1
        cell.id = name if seen[name] == 1 else f"{name}-{seen[name]}"


def _block_stub(match: re.Match[str]) -> str:
    lines = [line.strip() for line in match["body"].splitlines()]
    count = sum(bool(line) and not line.startswith("#") for line in lines)
    return f"{match['indent']}...  # your code, about {count} line{'s' * (count != 1)}"


def _line_stub(match: re.Match[str]) -> str:
    return f"{match['head']}...{match['comma']}  # your answer"


def _check_marks(path: Path, notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if mark := _ANY_MARK.search(cell.source):
            line = cell.source[: mark.start()].count("\n")
            raise BuildError(
                f"{path.name}: the mark in {cell.source.splitlines()[line].strip()!r} has no "
                "partner or no value before it; fix it and build again."
            )


def _course_version() -> str:
    text = (HERE.parent / "keepfed/src/keepfed/__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+?)"', text, re.MULTILINE)
    if not found:
        raise BuildError("keepfed/__init__.py names no __version__; add it and build again.")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
