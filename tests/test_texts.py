"""What texts say of the code: files and modules are where they say, and hold what they say."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from course_utils.paths import REPO

TEXTS = [
    REPO / "README.md",
    *sorted((REPO / "docs").glob("*.md")),
    *sorted((REPO / "notebooks/source").glob("*.py")),
]
FILES = re.compile(
    r"(?<![\w./])(?:course_utils|data_scripts|notebooks|benchmarks|tests|docs)/[\w/]+\.\w+"
)
MODULES = re.compile(r"[`\"]((?:course_utils|notebooks\.stories|data_scripts)(?:\.[a-z_]+)+)[`\"]")
HOLDS = re.compile(r"`(\w+)`\s(?:\w+,?\s){0,4}?(?:in|from)\s`(course_utils/[\w/]+\.py)`")


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_every_file_and_module_that_a_text_names_is_there(text: Path) -> None:
    prose = text.read_text("utf-8").replace("\n# ", " ")
    assert [name for name in FILES.findall(prose) if not (REPO / name).exists()] == []
    assert [name for name in MODULES.findall(prose) if not _module(name)] == []
    for name, file in HOLDS.findall(prose):
        assert re.search(rf"^(?:def |class )?{name}\b", (REPO / file).read_text("utf-8"), re.M)


def _module(name: str) -> bool:
    """Tell whether `name` is a module, or a style of plots as matplotlib names it."""
    try:
        style = (REPO / name.replace(".", "/")).with_suffix(".mplstyle")
        return find_spec(name) is not None or style.exists()
    except ModuleNotFoundError:
        return False
