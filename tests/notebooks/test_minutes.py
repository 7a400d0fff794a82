"""The README has the durations of notebooks and paths that the build counts."""

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
    """Return the parts of each notebook by number."""
    return {number(path): parts(path) for path in sources(HERE / "source")}


def test_readme_has_minutes_of_each_notebook(counted: Counted) -> None:
    said = {called: [core, extra] for called, core, extra in NOTEBOOK.findall(README)}
    assert said == {
        key: [str(part) if part.words else "" for part in both] for key, both in counted.items()
    }


def test_readme_has_duration_of_each_path(counted: Counted) -> None:
    found = paths(README, counted)
    assert len(found) == README.count(" min |")
    for path in found:
        assert path.minutes_said == sum(stop.minutes for stop in path.stops), path.title


def test_first_day_takes_at_most_six_hours(counted: Counted) -> None:
    assert sum(core.minutes for called, (core, _) in counted.items() if called <= "10") <= 360
