"""What the README says of the time that notebooks and paths take is what the build counts."""

import re

from course_utils.paths import REPO
from notebooks.build import HERE, number, parts, sources
from slides.instructor.schedule import paths

README = (REPO / "README.md").read_text("utf-8")
COUNTED = {number(path): parts(path) for path in sources(HERE / "source")}
NOTEBOOK = re.compile(r"^\| \[(\d\d|[A-Z]) .* \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def test_a_notebook_takes_the_minutes_that_the_readme_says() -> None:
    said = {called: [core, extra] for called, core, extra in NOTEBOOK.findall(README)}
    counted = {key: [str(p) if p.words else "" for p in both] for key, both in COUNTED.items()}
    assert said == counted


def test_a_path_takes_as_long_as_the_readme_says() -> None:
    found = paths(README, COUNTED)
    assert len(found) == README.count(" min |")
    for path in found:
        assert path.minutes_said == sum(stop.minutes for stop in path.stops), path.title


def test_the_cores_of_the_first_day_take_no_more_than_six_hours() -> None:
    assert sum(core.minutes for called, (core, _) in COUNTED.items() if called <= "10") <= 360
