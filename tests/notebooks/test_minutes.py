"""What the README says of the time that notebooks and paths take is what the build counts."""

import re

import pytest

from course_utils.paths import REPO
from notebooks.build import HERE, Part, number, parts, sources
from slides.instructor.schedule import paths

README = (REPO / "README.md").read_text("utf-8")
NOTEBOOK = re.compile(r"^\| \[(\d\d|[A-Z]) .* \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
Counted = dict[str, list[Part]]


@pytest.fixture(scope="module")
def counted() -> Counted:
    """Return the parts of each notebook by its number."""
    return {number(path): parts(path) for path in sources(HERE / "source")}


def test_a_notebook_takes_the_minutes_that_the_readme_says(counted: Counted) -> None:
    said = {called: [core, extra] for called, core, extra in NOTEBOOK.findall(README)}
    assert said == {
        key: [str(part) if part.words else "" for part in both] for key, both in counted.items()
    }


def test_a_path_takes_as_long_as_the_readme_says(counted: Counted) -> None:
    found = paths(README, counted)
    assert len(found) == README.count(" min |")
    for path in found:
        assert path.minutes_said == sum(stop.minutes for stop in path.stops), path.title


def test_the_cores_of_the_first_day_take_no_more_than_six_hours(counted: Counted) -> None:
    assert sum(core.minutes for called, (core, _) in counted.items() if called <= "10") <= 360
