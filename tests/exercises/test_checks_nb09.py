"""The checks of notebook 09: stubs are not attempted, solutions right, typical slips named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_utils.loading.prefetch import CudaPrefetcher
from course_utils.teaching.exercise import check
from notebooks.build import HERE, for_learner, read_source, with_solutions
from notebooks.exercises.nb09 import bench as nb09_bench
from notebooks.exercises.nb09 import ex2_repair_the_prefetcher as nb09_prefetcher
from notebooks.exercises.nb09 import on_device as nb09_on_device
from notebooks.exercises.nb09.ex1_label_the_defects import _LABELS
from notebooks.exercises.nb09.ex3_when_pinning_loses import _SLIPS, CASES, measure_ms, predicted_ms
from notebooks.exercises.nb09.problem import CAUSES, SYMPTOMS, Case
from tests.exercises import attempts_nb09 as attempts
from tests.exercises.answers import answer, assert_refused

SOURCE = HERE / "source/09_prefetch_to_cuda.py"
GIVEN = {
    "09.2": "from collections import deque\nfrom course_utils.hardware.gpu.batches import leaves",
    "09.3": "from notebooks.exercises.nb09.problem import *",
}
ANSWERS = {"09.2": "Prefetcher", "09.3": "step_time_ms"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for what never comes."""
    monkeypatch.setattr(nb09_bench, "PATIENCE_S", 0.7)
    monkeypatch.setattr(nb09_prefetcher, "SETTLE_S", 0.1)
    monkeypatch.setattr(nb09_prefetcher, "LEAVE_S", 0.3)
    monkeypatch.setattr(nb09_on_device, "WAKE_S", 0.3)


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


@pytest.mark.parametrize("key", ANSWERS)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    assert (
        check(key, answer("09", ANSWERS[key], for_learner, folder, given=GIVEN[key])).status
        == "todo"
    )


@pytest.mark.parametrize("key", ANSWERS)
def test_the_solution_is_right(key: str, folder: Path) -> None:
    solved = answer("09", ANSWERS[key], with_solutions, folder, given=GIVEN[key])
    verdict = check(key, solved)
    assert verdict.status == "right", verdict


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


@pytest.mark.parametrize(
    "attempt",
    [attempts.Right, attempts.CopiesWaitForSteps, attempts.HostWaits, attempts.Threaded],
)
def test_another_right_prefetcher_is_right(attempt: Any) -> None:
    verdict = check("09.2", attempt)
    assert verdict.status == "right", verdict


def test_the_prefetcher_of_the_course_is_right() -> None:
    def ours(loader: Any, devices: Any, depth: int = 1) -> CudaPrefetcher:
        return CudaPrefetcher(loader, devices.current(), depth=depth)

    verdict = check("09.2", ours)
    assert verdict.status == "right", verdict


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.Notes, "if a thread of yours expects a pair"),
        (attempts.Drained, "The loop waits for ever"),
        (attempts.NoEvent, "they do not wait for their copies"),
        (attempts.LosesTheLast, "the loop gets 7"),
        (attempts.LastFirst, "in another order"),
        (attempts.PairsInThread, "expects a pair of tensors"),
        (attempts.PairsOnly, "Your code stopped"),
        (attempts.TensorsOnly, "does not come out as it went in"),
        (attempts.BeginsAtOnce, "before anybody asked you"),
        (attempts.OneEpochThread, "The second epoch waits for ever"),
        (attempts.OneEpoch, "[8, 0, 0]"),
        (attempts.StreamPerEpoch, "memory grows from epoch to epoch"),
        (attempts.ThreadDiesSilently, "nobody tells the loop"),
        (attempts.SwallowsErrors, "as if all were well"),
        (attempts.AnotherError, "the loop gets RuntimeError"),
        (attempts.ErrorOvertakes, "overtakes what was copied ahead"),
        (attempts.JoinsForEver, "does not get out of its break"),
        (attempts.LeavesThread, "a thread is still there"),
        (attempts.KeepsLoaderOpen, "the loader is still open"),
        (attempts.KeepsStaged, "still on the GPU"),
        (attempts.DeviceOfTheThread, "its batches are on GPU 0"),
        (attempts.NoRecordStream, "Wrong in 10 of 20 epochs"),
        (attempts.QueueOfThree, "batches on the GPU at a time"),
        (attempts.KeepsTheLast, "3 batches on the GPU"),
        (attempts.DefaultStream, "Behind 0% of the copying"),
        (attempts.WaitsForAllCopies, "Behind 0% of the copying"),
        (attempts.WhenAsked, "Behind 0% of the copying"),
    ],
)
def test_a_wrong_prefetcher_is_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("09.2", attempt), misconception)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("trial", "design", "misconception"),
    [
        ("exception", attempts.NotesForAnyBatch, "nobody tells the loop"),
        ("second epoch", attempts.NotesForAnyBatch, "started once"),
        ("break", attempts.NotesForAnyBatch, "a thread is still there"),
        ("order", attempts.NotesForAnyBatch, "order of epoch 0"),
        ("nested batch", attempts.Notes, "expects a pair of tensors"),
        ("device index", attempts.NotesForAnyBatch, "its batches are on GPU 0"),
        ("memory in flight", attempts.NotesForAnyBatch, "batches on the GPU at a time"),
        ("overlap", attempts.NotesForAnyBatch, "Behind 0% of the copying"),
    ],
)
def test_the_design_of_the_notes_fails_each_trial_alone(
    trial: str, design: Any, misconception: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {trial: nb09_prefetcher.TRIALS[trial]}
    monkeypatch.setattr(nb09_prefetcher, "TRIALS", alone)
    assert_refused(check("09.2", design), misconception)


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
