"""The checks of notebook 01: stubs are not attempted, solutions right, typical slips named."""

import multiprocessing
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from course_utils.teaching.notebook import data_path
from course_utils.teaching.notebook.worker_module import define
from notebooks.build import for_learner, with_solutions
from tests.exercises import attempts_nb01 as attempts
from tests.exercises.answers import answer, assert_refused, code

ANSWERS = {"01.1": "pad_events", "01.2": "split_by_run", "01.3": "BatchedPulseFile"}
WORKERS = ("01.1", "01.3")
GIVEN = "import numpy as np"


@pytest.fixture(scope="module", autouse=True)
def _given_module(folder: Path) -> None:
    define("pulse_file", code("01", "PulseFile", with_solutions), folder=folder)


@pytest.mark.parametrize("key", ANSWERS)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    assert check(key, answer("01", ANSWERS[key], for_learner, folder, given=GIVEN)).status == "todo"


@pytest.mark.slow
@pytest.mark.parametrize("key", WORKERS)
def test_the_solution_is_right_however_workers_start(
    key: str, folder: Path, start_method: str
) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = check(key, answer("01", ANSWERS[key], with_solutions, folder, given=GIVEN))
    assert verdict.status == "right", verdict


def test_the_solution_splits_by_run(folder: Path) -> None:
    assert (
        check("01.2", answer("01", ANSWERS["01.2"], with_solutions, folder, given=GIVEN)).status
        == "right"
    )


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.a_tuple, "needs names"),
        (attempts.a_list_of_events, "A list of tensors is not a batch"),
        (attempts.no_mask, "no tensor mask"),
        (attempts.time_first, "wanted is (B, T, 4)"),
        (attempts.squeezed, "also if B is 1"),
        pytest.param(attempts.nested, "wanted is (B, T, 4)", marks=pytest.mark.slow),
        (attempts.cut_to_the_shortest, "throws pulses away"),
        (attempts.always_1000_wide, "A fixed width"),
        (attempts.doubles, "the model wants float32"),
        (attempts.zeros_in_front, "in front of the pulses"),
        (attempts.padded_with_minus_one, "what follows is not zero"),
        (attempts.sorted_by_length, "in another order"),
        (attempts.mask_upside_down, "upside down"),
        (attempts.mask_from_values, "looks at their values"),
        (attempts.mask_all_true, "would learn from padding"),
        (attempts.mask_of_floats, "picks rows"),
        (attempts.mask_per_value, "one entry for each pulse"),
        (attempts.energies_as_doubles, "a loss between them"),
        (attempts.energies_as_a_column, "not those of the events"),
        (lambda samples: attempts.good_batch(samples), "imports what it needs by name"),
    ],
)
def test_a_wrong_batch_is_explained(
    attempt: Callable[[attempts.Samples], Any], misconception: str
) -> None:
    assert_refused(check("01.1", attempt), misconception)


@pytest.mark.slow
def test_a_batch_that_depends_on_the_last_one_is_found_in_a_worker() -> None:
    assert_refused(check("01.1", attempts.as_wide_as_ever), "kept from one call to the next")


def test_a_function_of_the_notebook_is_refused_before_a_worker_dies_of_it() -> None:
    code: dict[str, Any] = {"__name__": "__main__", "good_batch": attempts.good_batch}
    exec("def mine(samples):\n    return good_batch(samples)", code)
    assert_refused(check("01.1", code["mine"]), "lives in the notebook")


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.split_events, "runs in validation are in training too"),
        (attempts.cut_the_file, "You cut the file in two"),
        (attempts.numbers_of_runs, "You return the numbers of runs"),
        (attempts.true_or_false, "true or false for each event"),
        (attempts.only_validation, "wanted are two arrays"),
        (attempts.an_empty_part, "One part is empty"),
        (attempts.parts_swapped, "in the right order"),
        (attempts.runs_from_zero, "in neither part"),
        (attempts.events_twice, "would count double"),
        (attempts.seed_ignored, "Every seed gives the same split"),
        (attempts.seed_forgotten, "another split each time"),
    ],
)
def test_a_wrong_split_is_explained(
    attempt: Callable[[Any, float, int], Any], misconception: str
) -> None:
    assert_refused(check("01.2", attempt), misconception)


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.Misspelt, "has no __getitems__"),
        (attempts.OneByOne, "64 requests for 64 events"),
        (attempts.InSortedOrder, "The events come sorted"),
        (attempts.WithoutTwins, "may be asked for twice"),
        (attempts.ADict, "collate_fn wants a list"),
        (attempts.FromFirstToLast, "you read all that lies between"),
        (attempts.WithoutSorting, "not side by side in a shuffled batch"),
        (attempts.TheNextOne, "the pulses of others"),
    ],
)
def test_a_wrong_way_to_read_a_batch_is_explained(attempt: type[Any], misconception: str) -> None:
    assert_refused(check("01.3", attempt), misconception)


def _pictures() -> list[str]:
    """Return the class of each picture, in the order of ImageFolder."""
    paths = sorted(data_path("images").glob("*/*.jpg"))
    return [path.parent.name for path in paths]


def test_the_imbalance_is_found() -> None:
    counts = Counter(_pictures())
    verdict = check("01.4", counts, [1 / counts[name] for name in _pictures()])
    assert verdict.status == "right", verdict
    assert "4 of 200 pictures show retina" in verdict.message


def test_numbers_left_open_are_not_attempted() -> None:
    assert check("01.4", ..., ...).status == "todo"
    assert check("01.4", Counter(_pictures()), ...).status == "todo"


@pytest.mark.parametrize(
    ("count", "misconception"),
    [
        (lambda names: list(Counter(names).values()), "not a dict from the names"),
        (lambda names: Counter(sorted(names).index(name) for name in names), "not a dict from"),
        (lambda names: Counter(names[:64]), "You counted 64 of 200 pictures"),
        (lambda names: Counter(chain(names[:-9], names[:9])), "The count is off for astronaut"),
    ],
)
def test_a_wrong_count_is_explained(count: Callable[[list[str]], Any], misconception: str) -> None:
    assert_refused(check("01.4", count(_pictures()), [1.0] * len(_pictures())), misconception)


@pytest.mark.parametrize(
    ("weigh", "misconception"),
    [
        (lambda counts, names: [1 / n for n in counts.values()], "draws only those, all of class"),
        (lambda counts, names: {c: 1 / n for c, n in counts.items()}, "knows no classes"),
        (lambda counts, names: [1.0] * 64, "there are 200 pictures"),
        (lambda counts, names: [1.0] * len(names), "All pictures weigh the same"),
        (lambda counts, names: [counts[name] for name in names], "Common classes weigh more"),
        (lambda counts, names: [counts[name] ** -0.5 for name in names], "times as often as the"),
    ],
)
def test_wrong_weights_are_explained(
    weigh: Callable[[Counter[str], list[str]], Any], misconception: str
) -> None:
    counts = Counter(_pictures())
    assert_refused(check("01.4", counts, weigh(counts, _pictures())), misconception)
