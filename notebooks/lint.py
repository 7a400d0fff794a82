"""Hold the notebook sources to the rules of the course, and say which line breaks one.

python -m notebooks.lint             prints a sentence for each finding; exit 1 if there is one
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from notebooks.build import (
    HERE,
    STORED,
    for_learner,
    header,
    number,
    read_source,
    sources,
    tags,
    with_solutions,
)
from notebooks.claims import Claim, read_claims
from notebooks.parts import exercise_times, part, split

LONGEST_CELL = 15  # lines that are neither blank nor the magic
LONGEST_SOLUTION = 30
LONGEST_CORE = 75  # minutes, with its exercises
PROJECT, LONGEST_PROJECT = 60, 90  # minutes of an exercise that is a project, and of its core
MOST_EXERCISES = 3  # in the core

_HEADER = ("you will do", "you will learn", "you need", "minutes")
_MAGIC = "%%worker_module"
_QUANTITY = re.compile(
    r"(?<![\w.])\d[\d.,]*(?:\s*(?:to|and|-|\u2013)\s*\d[\d.,]*)?\s?"
    r"(?:%|\u00d7|x\b|times\b|[mµun]?s\b|seconds?\b|hours?\b|days?\b|[kKMGT]i?B\b|bytes\b|W\b"
    r"|[a-z]+/s\b|€|\$|euros?\b|dollars?\b)"
)
_NOT_PROSE = re.compile(r"```.*?```|`[^`\n]*`|<!--.*?-->|<[^>]*>|\]\([^)]*\)", re.DOTALL)
_GIVEN = "<!-- given -->"


def lint(path: Path, claims: Iterable[Claim]) -> list[str]:
    """Return a sentence for every rule that the source breaks."""
    source = read_source(path)
    learner, solved = for_learner(source), with_solutions(source)
    own_claims = [claim for claim in claims if claim.notebook == number(path)]
    findings = [*_syntax("learner's", learner), *_syntax("solved", solved)]
    findings = findings or [
        *_frame(learner, number(path)),
        *_lengths(learner, solved),
        *_parts(learner),
        *_pairs(learner),
        *_checks_end_their_cell(learner),
        *_workers(solved),
        *_claims(source, own_claims),
    ]
    return [f"{path.name}: {finding}" for finding in findings]


def _frame(learner: NotebookNode, called: str) -> Iterator[str]:
    """Check the title, the header, the first and the last cell."""
    first = header(learner.cells)
    code = [cell for cell in _code(learner) if STORED not in tags(cell)]
    if not re.match(rf"# {called} · \w", first):
        yield f"begin with the title `# {called} · Verb and topic`."
    for word in _HEADER:
        if word not in first.lower():
            yield f"the header does not say {word!r}: add it to the first cell."
    begin = ["import course_utils as cu", f'cu.ready("{called}")']
    if not code or [line for line in code[0].source.splitlines() if line] != begin:
        yield f"the first code cell is not {begin[0]!r} and {begin[1]!r}: begin with these."
    if "{minutes}" not in first:
        yield "the header gives minutes of its own: write `{minutes}`, the build counts them."
    core = [cell for cell in split(learner)[0] if cell.cell_type == "markdown"]
    if "you now can" not in core[-1].source.lower():
        yield 'the last text cell of the core does not say "You now can": say what was gained.'


def _lengths(learner: NotebookNode, solved: NotebookNode) -> Iterator[str]:
    for notebook, longest in (learner, LONGEST_CELL), (solved, LONGEST_SOLUTION):
        for cell in _code(notebook):
            lines = [s for s in cell.source.splitlines() if s.strip() and not s.startswith("%%")]
            if len(lines) > longest:
                yield f"{_name(cell)} has {len(lines)} lines, at most {longest}: split it."


def _parts(learner: NotebookNode) -> Iterator[str]:
    """Check that the core is short, and minutes are honest."""
    core = part(split(learner)[0])
    has_project = max(core.exercises.values(), default=0) >= PROJECT
    longest = LONGEST_PROJECT if has_project else LONGEST_CORE
    if len(core.exercises) > MOST_EXERCISES or core.minutes > longest:
        yield (
            f"the core takes {core.minutes} minutes with {len(core.exercises)} exercises, at most "
            f"{longest} with {MOST_EXERCISES}: move some of it below `# Extra`."
        )
    yield from exercise_times(learner.cells)


def _syntax(version: str, notebook: NotebookNode) -> Iterator[str]:
    for cell in _code(notebook):
        try:
            _tree(cell)
        except SyntaxError as error:
            yield f"{_name(cell)} is not Python in the {version} version ({error.msg}). Fix it."


def _pairs(learner: NotebookNode) -> Iterator[str]:
    """Check that each prediction is revealed."""
    asked, revealed = (set(_keys(learner, name)) for name in ("predict", "reveal"))
    for key in sorted(asked ^ revealed):
        yield f"{key} needs both a predict and a reveal: write the other one."


def _checks_end_their_cell(learner: NotebookNode) -> Iterator[str]:
    for cell in _code(learner):
        if "cu.check(" in cell.source and not cell.source.splitlines()[-1].startswith("cu.check("):
            yield f"{_name(cell)}: only a last line is shown, so end the cell with `cu.check(...)`."


def _workers(solved: NotebookNode) -> Iterator[str]:
    """Check that nothing which lives only in the notebook goes to a worker."""
    plain = [
        c
        for c in _code(solved)
        if not c.source.startswith(_MAGIC) and "raises-exception" not in tags(c)
    ]
    nodes = [(cell, node) for cell in plain for node in ast.walk(_tree(cell))]
    functions = {node.name for _, node in nodes if isinstance(node, ast.FunctionDef)}
    keywords = [(cell, node) for cell, node in nodes if isinstance(node, ast.keyword)]
    works = any(k.arg == "num_workers" and not _is_zero(k.value) for _, k in keywords)
    for cell, node in nodes:
        if works and isinstance(node, ast.ClassDef):
            yield f"{_name(cell)} defines {node.name}, unknown to workers: begin it with {_MAGIC}."
    for cell, keyword in keywords:
        if keyword.arg in ("collate_fn", "worker_init_fn"):
            if isinstance(keyword.value, ast.Lambda):
                yield f"{_name(cell)}: a lambda cannot go to a worker; name the {keyword.arg}."
            elif works and isinstance(keyword.value, ast.Name) and keyword.value.id in functions:
                yield f"{_name(cell)}: {keyword.value.id} goes to workers: define it in {_MAGIC}."


def _claims(source: NotebookNode, claims: Sequence[Claim]) -> Iterator[str]:
    cells = [cell for cell in _markdown(source) if "instructor" not in tags(cell)]
    whole = " ".join(" ".join(cell.source.split()) for cell in cells)
    for claim in claims:
        if " ".join(claim.text.split()) not in whole:
            yield f"claim {claim.id} is not in the prose word for word: fix claims.toml."
    texts = [" ".join(_NOT_PROSE.sub(" ", claim.text).split()) for claim in claims]
    for cell in cells:
        for paragraph in re.split(r"\n\s*\n", cell.source):
            if _GIVEN not in paragraph and not paragraph.startswith("#"):
                prose = " ".join(_NOT_PROSE.sub(" ", paragraph).split())
                for text in texts:
                    prose = prose.replace(text, "")
                for found in _QUANTITY.findall(prose):
                    yield f"{found!r} is not in claims.toml: add it, or mark it {_GIVEN}."


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "instructor" not in tags(cell)
    ]


def _markdown(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def _tree(cell: NotebookNode) -> ast.Module:
    source = cell.source
    if source.startswith(_MAGIC):
        source = source.partition("\n")[2]
    manager = TransformerManager()  # type: ignore[no-untyped-call]
    return ast.parse(manager.transform_cell(source))


def _keys(notebook: NotebookNode, function: str) -> Iterator[str]:
    for cell in _code(notebook):
        for node in ast.walk(_tree(cell)):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == f"cu.{function}"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                yield str(node.args[0].value)


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == 0


def _name(cell: NotebookNode) -> str:
    lines = cell.source.splitlines() or [""]
    return f"the cell `{lines[0][:50]}`"


def main(paths: Iterable[Path] | None = None) -> int:
    """Print what is found in the sources and return the exit status."""
    claims = read_claims()
    paths = sources(HERE / "source") if paths is None else paths
    findings = [finding for path in paths for finding in lint(path, claims)]
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
