import re

import pytest

from course_utils.paths import REPO
from notebooks.build import HERE, Part, number, parts, sources
from slides.instructor.schedule import LONGEST, Path, in_class, length, paths

README = (REPO / "README.md").read_text("utf-8")
NOTEBOOK = re.compile(r"^\| \[(\d\d|[A-Z]) .* \| (.*) \| (.*) \| (\d+) \|$", re.MULTILINE)
Counted = dict[str, list[Part]]


@pytest.fixture(scope="module")
def counted() -> Counted:
    return {number(path): parts(path) for path in sources(HERE / "source")}


@pytest.fixture(scope="module")
def found(counted: Counted) -> dict[str, Path]:
    return {path.title: path for path in paths(README, counted)}


def test_readme_has_minutes_of_each_notebook(counted: Counted) -> None:
    rows = []
    for key, (core, extra) in counted.items():
        texts = (str(part) if part.words else "" for part in (core, extra))
        rows.append((key, *texts, str(in_class(key, core))))
    assert sorted(NOTEBOOK.findall(README)) == sorted(rows)


def test_readme_has_times_of_each_path(found: dict[str, Path]) -> None:
    assert {*found} == {*LONGEST, "At home"}
    for path in found.values():
        assert (path.said_alone, path.said_in_class) == (path.alone, path.in_class), path.title


@pytest.mark.parametrize("title", LONGEST)
def test_path_fits_into_its_days(title: str, found: dict[str, Path]) -> None:
    lengths = [length(day) for day in found[title].days]
    assert len(lengths) == len(LONGEST[title])
    assert all(took <= most for took, most in zip(lengths, LONGEST[title], strict=True)), lengths
