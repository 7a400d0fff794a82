"""The instructor's pack: it has a page per notebook and matches the cells."""

import re

import pytest

from notebooks.build import HERE, number, parts, sources
from slides.instructor.collect import main
from slides.instructor.contents import goals, guessed, notes, questions
from slides.instructor.pages import script_minutes, teacher_pages

SOURCES = sources(HERE / "source")


@pytest.mark.slow
def test_instructor_pack_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run `make notebooks`"


def test_notebook_pages_have_all_instructor_sections() -> None:
    for source in SOURCES:
        told = notes(source)
        assert {"Script", "Leave out", "Board", "Goes wrong"} <= set(told), source
        assert sorted(guessed(told.get("Guesses", ""))) == sorted(questions(source)), source


def test_script_takes_as_long_as_the_core() -> None:
    for source in SOURCES:
        core, _ = parts(source)
        assert abs(sum(script_minutes(notes(source)["Script"])) - core.minutes) <= 2, source


def test_each_core_exercise_checks_a_goal() -> None:
    for source in SOURCES:
        core, extra = parts(source)
        keys = {key for goal in goals(source) for key in goal.checks}
        assert core.exercises.keys() <= keys, source
        assert keys <= {*core.exercises, *extra.exercises, *questions(source)}, source
        assert len(goals(source)) > 1, source


def test_book_has_a_page_to_print_for_each_notebook_and_path() -> None:
    made = dict(teacher_pages())
    assert {f"teach/{number(source)}.md" for source in SOURCES} <= {*made}
    assert "2.1, 02a, 02b" in made["teach/02.md"]
    printed = re.findall(r"include\} (\w+)\.md", made["teach/half-a-day.md"])
    assert printed == ["00", "01", "02"]
    listed = made["teach/guide.md"].rpartition("{toctree}")[2]
    assert {f"teach/{name}.md" for name in re.findall(r"^[\w-]+$", listed, re.MULTILINE)} == {
        *made
    } - {"teach/guide.md"}
