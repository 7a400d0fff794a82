"""What the README says of the time that notebooks and paths take is what the build counts."""

import re

from course_utils.paths import REPO
from notebooks.build import HERE, number, parts, sources

README = (REPO / "README.md").read_text("utf-8")
COUNTED = {number(path): parts(path) for path in sources(HERE / "source")}
NOTEBOOK = re.compile(r"^\| \[(\d\d|[A-Z]) .* \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
PATH = re.compile(r"^\| \*\*[^|]*\*\* \| ([^|]*) \| (\d+) h (\d+) min \|$", re.MULTILINE)
PIECE = re.compile(r"(\d\d)(?:–(\d\d))?( with what is extra)?(?:, |$)")


def test_a_notebook_takes_the_minutes_that_the_readme_says() -> None:
    said = {called: [core, extra] for called, core, extra in NOTEBOOK.findall(README)}
    counted = {key: [str(p) if p.words else "" for p in both] for key, both in COUNTED.items()}
    assert said == counted


def test_a_path_takes_as_long_as_the_readme_says() -> None:
    paths = PATH.findall(README)
    assert paths
    for pieces, hours, minutes in paths:
        found = PIECE.findall(pieces)
        assert "".join(match[0] for match in PIECE.finditer(pieces)) == pieces
        counted = 0
        for first, last, with_extra in found:
            for each in range(int(first), int(last or first) + 1):
                core, extra = COUNTED[f"{each:02}"]
                counted += core.minutes + (extra.minutes if with_extra else 0)
        assert (int(hours), int(minutes)) == divmod(counted, 60), pieces


def test_the_cores_of_the_first_day_take_no_more_than_six_hours() -> None:
    assert sum(core.minutes for called, (core, _) in COUNTED.items() if called <= "10") <= 360
