"""The checks of notebook 05: stubs are not attempted, solutions right, typical slips named."""

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from course_utils.loading.prefetch import ThreadPrefetcher
from course_utils.teaching.exercise import check
from notebooks.build import HERE, for_learner, read_source, with_solutions
from notebooks.exercises.nb05 import ex3_prefetch as nb05_prefetch
from tests.exercises import attempts_nb05 as attempts
from tests.exercises.answers import answer, assert_refused

SOURCE = HERE / "source/05_stream_and_shuffle.py"
ANSWERS = {"05.1": "ShardStream", "05.3": "Prefetcher"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for what never comes."""
    monkeypatch.setattr(nb05_prefetch, "PATIENCE_S", 1.0)


def _numbers() -> list[int]:
    """Return the answer to exercise 5.2 of the solutions."""
    solved = with_solutions(read_source(SOURCE))
    (cell,) = (cell.source for cell in solved.cells if 'cu.check("05.2"' in cell.source)
    names: dict[str, Any] = {}
    exec(cell.partition("cu.check")[0], names)
    return [names[name] for name in ("at_once", "chunk", "buffer")]


@pytest.mark.parametrize("key", ANSWERS)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    assert check(key, answer("05", ANSWERS[key], for_learner, folder)).status == "todo"


def test_numbers_left_open_are_not_attempted() -> None:
    assert check("05.2", ..., ..., ...).status == "todo"
    assert check("05.2", 35, 20, ...).status == "todo"


@pytest.mark.slow
def test_the_solution_divides_the_shards_however_workers_start(
    folder: Path, start_method: str
) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = check("05.1", answer("05", ANSWERS["05.1"], with_solutions, folder))
    assert verdict.status == "right", verdict


@pytest.mark.slow
def test_ranks_first_and_then_workers_is_right_too() -> None:
    assert check("05.1", attempts.Nested).status == "right"


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.Everything, "every rank serves the same events"),
        (attempts.ByWorkerOnly, "every rank serves the same events"),
        (attempts.ByRankOnly, "the workers of a rank serve the same events"),
        (attempts.AsksInInit, "asked for in __init__"),
        (attempts.WithoutNone, "get_worker_info() returns None"),
        (attempts.LosesTheTail, "lose the tail"),
        (attempts.RoundedUp, "The others wait for the slowest"),
        (attempts.StepsByWorkers, "The shares overlap"),
        (attempts.StartsAtTheSum, "The shares overlap"),
        (attempts.CountsFromOne, "read by nobody"),
        (attempts.DividesEvents, "throw away"),
        (attempts.UsesItUp, "The second epoch"),
        (attempts.YieldsShards, "no event of a shard"),
        (attempts.Plain, "no IterableDataset"),
        (attempts.Nested([]), "not a class"),
    ],
)
def test_a_wrong_share_is_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("05.1", attempt), misconception)


def test_a_stream_of_the_notebook_is_refused_before_a_worker_dies_of_it() -> None:
    code: dict[str, Any] = {"__name__": "__main__", "Nested": attempts.Nested}
    exec("class Mine(Nested):\n    pass\n", code)
    assert_refused(check("05.1", code["Mine"]), "lives in the notebook")


def test_the_numbers_of_the_solution_mix_well() -> None:
    assert check("05.2", *_numbers()).status == "right"


@pytest.mark.parametrize(
    ("numbers", "misconception"),
    [
        ((1, 20, 980), "A buffer moves an event by its own length only"),
        ((8, 20, 840), "A buffer moves an event by its own length only"),
        ((1, 1, 999), "20,000 requests in an epoch"),
        ((45, 10, 100), "2,000 requests in an epoch"),
        ((40, 20, 1_000), "What is read and not yet used is memory too"),
        ((4, 200, 200), "A chunk of 200 spends memory"),
        ((4, 20, 100), "820 events of memory are unused"),
        ((0, 20, 100), "at_once = 0"),
        ((3.5, 20, 100), "at_once = 3.5"),
        ((200, 20, 1), "no more can be open"),
    ],
)
def test_wrong_numbers_are_explained(numbers: tuple[int, int, int], misconception: str) -> None:
    assert_refused(check("05.2", *numbers), misconception)


@pytest.mark.parametrize("prefetcher", [attempts.Prefetcher, ThreadPrefetcher])
def test_a_right_prefetcher_passes(prefetcher: type[Any]) -> None:
    verdict = check("05.3", prefetcher)
    assert verdict.status == "right", verdict


def test_the_solution_prefetches(folder: Path) -> None:
    before = set(threading.enumerate())
    verdict = check("05.3", answer("05", ANSWERS["05.3"], with_solutions, folder))
    assert verdict.status == "right", verdict
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (attempts.NoEnd, "The loop never ends"),
        (attempts.EndsAtNone, "they do not mean the end"),
        (attempts.Reversed, "in another order"),
        (attempts.NoThread, "The two take turns"),
        (attempts.TakesTurns, "The two take turns"),
        (attempts.AllAtOnce, "the whole source is read before"),
        (attempts.AlwaysOne, "asked to load 3 ahead"),
        (attempts.Unlimited, "An unlimited queue"),
        (attempts.TwiceTheDepth, "are the most"),
        (attempts.StartsInInit, "The second epoch waits for ever"),
        (attempts.KeepsTheSource, "Three epochs serve [8, 0, 0] items"),
        (attempts.NobodyTells, "An exception ends the thread"),
        (attempts.Swallows, "as if all were well"),
        (attempts.RaisesAnother, "the loop gets RuntimeError"),
        (attempts.BlocksInPut, "waiting for room in a queue that nobody empties"),
        (attempts.NeverStops, "the thread is still there"),
        (attempts.WaitsForTheThread, "does not get out of its break"),
        (attempts.HoldsTheIterator, "the source is still open"),
    ],
)
def test_a_wrong_prefetcher_is_explained(attempt: type[Any], misconception: str) -> None:
    assert_refused(check("05.3", attempt), misconception)
