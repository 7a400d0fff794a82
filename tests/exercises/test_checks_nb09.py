"""The checks of notebook 09: stubs are not attempted, solutions right, typical slips named."""

from collections.abc import Callable
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from notebooks.build import HERE, for_learner, read_source, with_solutions
from notebooks.exercises.nb09.ex1_label_the_defects import _LABELS
from notebooks.exercises.nb09.ex3_when_pinning_loses import _SLIPS, CASES, measure_ms, predicted_ms
from notebooks.exercises.nb09.problem import CAUSES, SYMPTOMS, Case
from tests.exercises.answers import assert_refused

SOURCE = HERE / "source/09_prefetch_to_cuda.py"


def _labels(version: Callable[[Any], Any]) -> list[Any]:
    """Return the answer to exercise 9.1 of a version of the notebook."""
    (cell,) = (
        cell.source
        for cell in version(read_source(SOURCE)).cells
        if 'cu.check("09.1"' in cell.source
    )
    names: dict[str, Any] = {}
    exec(cell.partition("cu.check")[0], names)
    return [names[letter] for letter in SYMPTOMS]


def test_labels_left_open_are_not_attempted() -> None:
    assert check("09.1", *_labels(for_learner)).status == "todo"


def test_the_labels_of_the_solution_are_right() -> None:
    assert check("09.1", *_labels(with_solutions)).status == "right"


@pytest.mark.parametrize("letter", SYMPTOMS)
def test_every_other_label_meets_an_objection_and_a_question(letter: str) -> None:
    for cause in CAUSES.keys() - {_LABELS[letter]}:
        assert_refused(check("09.1", *{**_LABELS, letter: cause}.values()), f"({letter})")


@pytest.mark.parametrize(
    ("letter", "cause", "misconception"),
    [
        ("f", "silent thread", "what has it died of?"),
        ("h", "no record_stream", "the first batch too"),
        ("d", "pageable memory", "in the queue of the steps"),
        ("a", "no such cause", "not among the causes"),
    ],
)
def test_a_close_label_is_told_apart(letter: str, cause: str, misconception: str) -> None:
    assert_refused(check("09.1", *{**_LABELS, letter: cause}.values()), misconception)


def test_labels_that_are_missing_are_asked_for() -> None:
    assert_refused(check("09.1", "thread in __init__"), "you give 1 causes")


@pytest.mark.parametrize("name", CASES)
def test_the_formula_is_what_the_device_measures(name: str) -> None:
    case = CASES[name]
    assert measure_ms(case) == pytest.approx(predicted_ms(case), abs=1e-3)


@pytest.mark.parametrize("slip", range(len(_SLIPS)))
def test_each_slip_in_the_times_is_named(slip: int) -> None:
    def predicted(case: Case) -> float:
        return _SLIPS[slip][0](case)

    assert_refused(check("09.3", predicted), _SLIPS[slip][1])


@pytest.mark.parametrize(
    ("predicted", "misconception"),
    [
        (lambda case: 1000 * predicted_ms(case), "the device takes 4.86"),
        (lambda case: "fast", "no number of milliseconds"),
    ],
    ids=["seconds and microseconds", "no number"],
)
def test_a_wrong_time_is_set_beside_the_measured_one(predicted: Any, misconception: str) -> None:
    assert_refused(check("09.3", predicted), misconception)
