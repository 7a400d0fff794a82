"""Notebooks import no answer and no judge, and each exercise has a file."""

import re
from importlib import import_module

import pytest

from course_utils.paths import REPO
from course_utils.teaching import exercise
from docs.import_graph import modules
from notebooks.build import HERE

PROBLEM = re.compile(r"course_utils\.exercises\.nb\d\d\.problem")
JUDGED = exercise.judge_modules()
PROBLEMS = sorted((REPO / "course_utils/exercises").glob("nb*/problem.py"))


def test_notebooks_import_problems_and_no_other_module_of_the_exercises() -> None:
    texts = [path.read_text("utf-8") for path in (HERE / "source").glob("*.py")]
    imported = {
        name for text in texts for name in re.findall(r"course_utils\.exercises[\w.]*", text)
    }
    assert not {name for name in imported if not PROBLEM.fullmatch(name)}


@pytest.mark.parametrize("folder", [path.parent.name for path in PROBLEMS])
def test_a_problem_knows_no_judge(folder: str) -> None:
    problem = modules()[f"course_utils.exercises.{folder}.problem"]
    above = ("course_utils.exercises", "course_utils.teaching")
    assert not [other for other in problem.imports if other.startswith(above)]


@pytest.mark.parametrize(("key", "module"), JUDGED.items())
def test_the_file_of_an_exercise_judges_it(key: str, module: str) -> None:
    import_module(module)
    assert exercise._EXERCISES[key][1].__module__ == module


def test_every_check_of_a_notebook_has_its_file() -> None:
    texts = [path.read_text("utf-8") for path in (HERE / "source").glob("[0-9]*.py")]
    checked = [key for text in texts for key in re.findall(r'^cu\.check\("(.+?)"', text, re.M)]
    assert sorted(checked) == sorted(JUDGED)
