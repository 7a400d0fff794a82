"""The checks of notebook 04: stubs are not attempted, solutions right, typical slips named."""

import multiprocessing
import sys
from collections import Counter
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.measure.simulate import Pipeline, simulate
from course_utils.teaching.exercise import check
from notebooks.build import for_learner, with_solutions
from notebooks.exercises.nb04.ex1_choose_workers import (
    enough,
    hidden_machines,
    needed_mb,
    smallest,
)
from notebooks.exercises.nb04.problem import MACHINES, Machine
from tests.exercises import attempts_nb04 as attempts
from tests.exercises.answers import answer, assert_refused

ANSWERS = {
    "04.1": "choose_workers",
    "04.2": "MyStrings",
    "04.3": "Rows",
    "04.4": "MyShifts",
}
GIVEN = """
import math
from notebooks.exercises.nb04.problem import Machine
"""


@pytest.mark.parametrize("key", ANSWERS)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    assert check(key, answer("04", ANSWERS[key], for_learner, folder, given=GIVEN)).status == "todo"


@pytest.mark.parametrize("key", ["04.1", "04.2"])
def test_the_solution_is_right(key: str, folder: Path) -> None:
    verdict = check(key, answer("04", ANSWERS[key], with_solutions, folder, given=GIVEN))
    assert verdict.status == "right", verdict


@pytest.mark.slow
def test_the_solution_keeps_its_own_handle_in_every_process(folder: Path) -> None:
    verdict = check("04.3", answer("04", ANSWERS["04.3"], with_solutions, folder, given=GIVEN))
    assert verdict.status == "right", verdict
    assert all(method in verdict.message for method in multiprocessing.get_all_start_methods())


@pytest.mark.slow
def test_the_solution_draws_right_however_workers_start(folder: Path, start_method: str) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = check("04.4", answer("04", ANSWERS["04.4"], with_solutions, folder, given=GIVEN))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_the_rule_agrees_with_the_model(machine: Machine) -> None:
    def idle(workers: int) -> float:
        loop = Pipeline(
            read_ms=machine.read_ms,
            decode_ms=machine.cpu_ms,
            step_ms=machine.step_ms,
            num_workers=workers,
            cores=machine.cores,
            storage_streams=machine.streams,
            steps=200,
        )
        return 1 - simulate(loop).summary().au

    assert idle(enough(machine)) < 0.01
    assert idle(enough(machine) - 1) > 0.1


def test_the_three_machines_differ_in_what_decides() -> None:
    assert [smallest(machine) for machine in MACHINES.values()] == [2, 8, None]
    container = MACHINES["container"]
    assert smallest(replace(container, free_mb=4_000)) == enough(container)


def test_every_limit_decides_on_some_hidden_machine() -> None:
    limits: Counter[str] = Counter()
    for m in hidden_machines(60):
        limits["cores"] += m.cpu_ms / m.cores > m.step_ms
        limits["storage"] += m.read_ms / m.streams > m.step_ms
        limits["memory"] += needed_mb(m, enough(m)) > m.free_mb
        limits["nothing"] += smallest(m) is not None
    assert len(limits) == 4
    assert min(limits.values()) >= 8, limits


def _fits(m: Machine, workers: int) -> int | None:
    return workers if smallest(m) is not None else None


@pytest.mark.parametrize(
    ("rule", "misconception"),
    [
        (lambda m: smallest(m) or 0, "You return 0 where no number"),
        (lambda m: m.cores, "One worker for each core"),
        (enough, "You never return None"),
        (lambda m: smallest(replace(m, free_mb=1e9)), "You leave out the memory"),
        (lambda m: smallest(replace(m, cores=10**6)), "workers share the cores"),
        (lambda m: smallest(replace(m, streams=10**6)), "workers share the storage"),
        (
            lambda m: enough(m) if needed_mb(m, enough(m)) <= m.free_mb else None,
            "You forget what the workers share",
        ),
        (lambda m: smallest(m) if enough(m) <= m.cores else None, "no more workers than cores"),
        (lambda m: min(enough(m), m.cores), "You cut W down to the cores"),
        (lambda m: smallest(replace(m, batch_mb=0)), "not the batches that lie ready"),
        (lambda m: smallest(replace(m, batch_mb=m.batch_mb / 2)), "one batch for each worker"),
        (lambda m: _fits(m, (m.read_ms + m.cpu_ms) // m.step_ms), "You round down"),
        (lambda m: _fits(m, round((m.read_ms + m.cpu_ms) / m.step_ms)), "the nearest number"),
        (lambda m: _fits(m, ceil(m.cpu_ms / m.step_ms)), "You leave the reading out"),
        (
            lambda m: _fits(m, m.free_mb // (m.worker_mb + 2 * m.batch_mb)),
            "the largest number that fits",
        ),
        (lambda m: 2, "You return 2"),
        (lambda m: None, "You return None for it, but there is a W"),
        (lambda m: 2.5, "no number of workers"),
        (lambda m: "8", "no number of workers"),
        (lambda m: m.threads, "AttributeError"),
    ],
)
def test_a_wrong_choice_is_explained(rule: Any, misconception: str) -> None:
    assert_refused(check("04.1", rule), misconception)


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.AsAList, "an object for each of the 5,000 strings"),
        (attempts.AsBytesInAList, "an object for each of the 5,000 strings"),
        (attempts.AsObjects, "an object for each of the 5,000 strings"),
        (attempts.PlacesInAList, "an object for each of the 5,000 strings"),
        (attempts.AsNumpyStrings, "take 4 bytes for each character"),
        (attempts.AsFixedBytes, "the room of the longest"),
        (attempts.PlacesInCharacters, "an offset in characters is not one in bytes"),
        (attempts.ReturnsBytes, "expects a str"),
        (attempts.OneTooMany, "len() says 5,001"),
        (attempts.OneFurther, "where the list had 'run_00000/event_00000000.npz'"),
        (attempts.AsAList(["an instance"]), "not a class"),
        (attempts.first_of, "not a class"),
    ],
)
def test_a_wrong_packing_is_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("04.2", attempt), misconception)


def test_other_ways_to_pack_are_right() -> None:
    assert check("04.2", attempts.InArrow).status == "right"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shares pages as it counts")
def test_the_memory_of_a_forked_worker_is_part_of_the_verdict() -> None:
    verdict = check("04.2", attempts.Joined)
    assert verdict.status == "right", verdict
    assert "made a forked worker" in verdict.message


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.OpensInInit, "It cannot be sent to a worker"),
        (attempts.OpensOnce, "Once the notebook has looked at a row"),
        (attempts.OpensByProcess, "Once the notebook has looked at a row"),
        (attempts.NextRow, "wanted are the 8 numbers of that row"),
        (attempts.HalfARow, "wanted are the 8 numbers of that row"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_handle_that_cannot_travel_is_explained(attempt: type[Any], misconception: str) -> None:
    assert_refused(check("04.3", attempt), misconception)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there")
@pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_handle_of_the_notebook_is_found_in_a_forked_worker() -> None:
    verdict = check("04.3", attempts.OpensOnceAndTravels)
    assert_refused(verdict, "it read through the handle that the notebook had open")


@pytest.mark.slow
def test_opening_for_every_row_is_counted() -> None:
    assert_refused(check("04.3", attempts.OpensAlways), "times for 200 rows")


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [attempts.OnLazyFile, attempts.ByPosition])
def test_other_ways_to_keep_a_handle_are_right(
    attempt: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = multiprocessing.get_all_start_methods()[:1]  # one of them, for the sake of time
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: first)
    verdict = check("04.3", attempt)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.MadeInInit, "Each has a copy of one generator"),
        (attempts.MadeOnce, "both workers got a copy of it"),
        (attempts.MadeForEverySample, "made anew, with the same seed, for every sample"),
        (attempts.SeededByWorker, "Every epoch brings the same numbers with 2 workers"),
        (attempts.SeededByIndex, "Every epoch brings the same numbers with 2 workers"),
        (attempts.SeededBySample, "Every epoch brings the same numbers without workers"),
        (attempts.SeededByNothing, "After the same torch.manual_seed other numbers come with 2"),
        (attempts.SeededByTheClock, "After the same torch.manual_seed other numbers come with 2"),
        (attempts.LegacyNumpy, "other numbers come without workers"),
        (attempts.PlainRandom, "other numbers come without workers"),
        (attempts.MadeInInit(8), "not a class"),
    ],
)
def test_wrong_random_numbers_are_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("04.4", attempt), misconception)


@pytest.mark.parametrize("attempt", [attempts.ByTorch, attempts.ByWorkerRng])
def test_other_ways_to_draw_are_right(attempt: type[Any]) -> None:
    verdict = check("04.4", attempt)
    assert verdict.status == "right", verdict


def test_the_check_leaves_the_learners_seed_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    check("04.4", attempts.MadeInInit)
    assert torch.equal(torch.rand(3), expected)
