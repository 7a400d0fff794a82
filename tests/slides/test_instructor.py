import pytest

from notebooks.build import HERE, parts, sources
from slides.instructor.collect import main
from slides.instructor.contents import goals, guessed, notes, questions
from slides.instructor.pages import script_minutes

SOURCES = sources(HERE / "source")


@pytest.mark.slow
def test_instructor_pack_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run `make notebooks`"


def test_notebook_pages_have_all_instructor_sections() -> None:
    for source in SOURCES:
        told = notes(source)
        assert {"Script", "Leave out", "Board", "Goes wrong"} <= set(told), source
        assert sorted(guessed(told.get("Guesses", ""))) == sorted(questions(source)), source


def test_script_takes_as_long_as_the_core_and_each_core_exercise_checks_a_goal() -> None:
    for source in SOURCES:
        core, extra = parts(source)
        assert abs(sum(script_minutes(notes(source)["Script"])) - core.minutes) <= 2, source
        keys = {key for goal in goals(source) for key in goal.checks}
        assert core.exercises.keys() <= keys, source
        assert keys <= {*core.exercises, *extra.exercises, *questions(source)}, source
        assert len(goals(source)) > 1, source
