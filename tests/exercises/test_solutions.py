"""Every exercise: what the notebook leaves to write is not attempted, what it solves is right."""

import multiprocessing
import re
from pathlib import Path

import pytest

from notebooks.build import HERE
from tests.exercises.solutions import judge, judge_stub, mutant, solution

# these judge what a notebook has measured, or data that it has made: their own tests make that up
MADE_UP = {"00.1", "00.2", "01.4", "03.2"}
SLOW = {
    "01.1",
    "01.3",
    "04.2",
    "04.3",
    "05.1",
    "07.1",
    "07.2",
    "10.1",
    "10.3",
}  # they start processes
SOURCES = [path.read_text("utf-8") for path in sorted((HERE / "source").glob("[0-9]*.py"))]
KEYS = [key for text in SOURCES for key in re.findall(r'^cu\.check\("(.+?)"', text, re.MULTILINE)]
HERE_JUDGED = [key for key in KEYS if key not in MADE_UP]


@pytest.mark.parametrize("key", HERE_JUDGED)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    verdict = judge_stub(key, folder)
    assert verdict.status == "todo", verdict


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[pytest.mark.slow] * (key in SLOW)) for key in HERE_JUDGED]
)
def test_the_solution_is_right(key: str, folder: Path, start_method: str) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = judge(key, folder)
    assert verdict.status == "right", verdict


def test_a_solution_comes_with_the_statements_that_it_needs_and_no_others() -> None:
    lines = solution("04.1").splitlines()
    assert lines[1:3] == ["import math", "def choose_workers(m: Machine) -> int | None:"]
    assert "import Machine" in lines[0] or ", Machine" in lines[0]


def test_a_mutation_that_changes_nothing_is_an_error() -> None:
    assert mutant("a + b", ("+", "-"), ("b", "c")) == "a - c"
    with pytest.raises(AssertionError, match="Nothing to replace"):
        mutant("a + b", ("*", "-"))
