"""References in texts: the named files, modules and definitions exist."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from course_utils.paths import REPO
from docs.import_graph import ROOTS

TEXTS = [
    REPO / "README.md",
    *sorted((REPO / "docs").glob("*.md")),
    *sorted((REPO / "notebooks/source").glob("*.py")),
]
FILES = re.compile(
    r"(?<![\w./])(?:course_utils|course_data|notebooks|benchmarks|tests|docs)/[\w/]+\.\w+"
)
OURS = "course_utils|course_stories|course_data|keepfed"
MODULES = re.compile(rf"[`\"]((?:{OURS})(?:\.[a-z_]+)+)[`\"]")
HOLDS = re.compile(r"`(\w+)`\s(?:\w+,?\s){0,4}?(?:in|from)\s`(course_utils/[\w/]+\.py)`")


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_files_and_modules_named_in_texts_exist(text: Path) -> None:
    prose = text.read_text("utf-8").replace("\n# ", " ")
    assert [name for name in FILES.findall(prose) if not (REPO / name).exists()] == []
    assert [name for name in MODULES.findall(prose) if not _module(name)] == []
    for name, file in HOLDS.findall(prose):
        assert re.search(rf"^(?:def |class )?{name}\b", (REPO / file).read_text("utf-8"), re.M)


def _module(name: str) -> bool:
    """Return whether `name` is a module, or a style sheet of matplotlib."""
    try:
        style = (REPO / name.replace(".", "/")).with_suffix(".mplstyle")
        return find_spec(name) is not None or style.exists()
    except ModuleNotFoundError:
        return False


CODE = [
    path
    for folder in ("notebooks", "benchmarks", "docs", "slides", *ROOTS)
    for kind in ("*.py", "*.js", "*.css")
    for path in (REPO / folder).rglob(kind)
    if not {"built", "assembled"} & set(path.parts)  # the built book
]
COMMENT = re.compile(r"^\s*(?:#|//|\*|/\*).*$|(?<=  )(?:#|//) .*$|\"\"\".*?\"\"\"", re.M | re.S)
SOURCE = re.compile(r"(?<![\w./*…])[a-z][a-z_]+\.(?:py|js|css)\b")
# files of learners, of Python and of the built book
FOREIGN = {
    "train.py",
    "three.py",
    "train_all.py",
    "run_clm.py",
    "setup.py",
    "sitecustomize.py",
    "field_guide.js",
}


def test_files_named_in_comments_exist() -> None:
    there = {path.name for path in CODE} | {path.name for path in (REPO / "tests").rglob("*.py")}
    named = {
        (path.name, file)
        for path in CODE
        for comment in COMMENT.findall(path.read_text("utf-8"))
        for file in SOURCE.findall(comment)
    }
    assert {(path, file) for path, file in named if file not in there | FOREIGN} == set()
