"""The checks of notebook 03: stubs are not attempted, solutions right, typical slips named."""

import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from notebooks.build import for_learner, with_solutions
from notebooks.exercises.nb03.ex3_list_the_flaws import FLAWS, SOUND
from notebooks.exercises.nb03.ex4_choose_tools import QUESTIONS
from notebooks.stories.clinic import CAUSES, NAMES, Clinic, discharge
from tests.exercises.answers import Version, answer, assert_refused


@pytest.mark.parametrize(("version", "status"), [(for_learner, "todo"), (with_solutions, "right")])
def test_the_stub_is_not_attempted_and_the_solution_right(
    version: Version, status: str, folder: Path
) -> None:
    written = answer("03", "ms_per_step", version, folder, given="import time")
    verdict = check("03.1", written)
    assert verdict.status == status, verdict


def _timed(gpu: Any, step: Any, clock: Any, *, warm_up: int = 3, count: int = 30) -> float:
    """Do it right: milliseconds of `count` steps together."""
    for _ in range(warm_up):
        step()
    gpu.synchronize()
    start = clock()
    for _ in range(count):
        step()
    gpu.synchronize()
    return float(1000 * (clock() - start))


def _with_events(gpu: Any, step: Any, clock: Any) -> float:
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    _timed(gpu, step, clock)
    start.record()
    for _ in range(50):
        step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end) / 50)


def _no_wait(gpu: Any, step: Any, clock: Any) -> float:
    step()
    start = clock()
    for _ in range(30):
        step()
    return float(1000 * (clock() - start) / 30)


def _no_last_wait(gpu: Any, step: Any, clock: Any) -> float:
    step()
    gpu.synchronize()
    start = clock()
    for _ in range(30):
        step()
    return float(1000 * (clock() - start) / 30)


def _wait_in_every_step(gpu: Any, step: Any, clock: Any) -> float:
    _timed(gpu, step, clock)
    start = clock()
    for _ in range(100):
        step().item()
    return float(1000 * (clock() - start) / 100)


def _warm_up_still_running(gpu: Any, step: Any, clock: Any) -> float:
    step()
    start = clock()
    for _ in range(30):
        step()
    gpu.synchronize()
    return float(1000 * (clock() - start) / 30)


def _never(gpu: Any, step: Any, clock: Any) -> float:
    return 8.0


def _real_clock(gpu: Any, step: Any, clock: Any) -> float:
    return _timed(gpu, step, time.perf_counter) / 30


@pytest.mark.parametrize("count", [12, 50, 200])
def test_any_number_of_steps_will_do(count: int) -> None:
    def mine(gpu: Any, step: Any, clock: Any = time.perf_counter) -> float:
        return _timed(gpu, step, clock, count=count) / count

    assert check("03.1", mine).status == "right"


def test_events_of_the_device_will_do() -> None:
    assert check("03.1", _with_events).status == "right"


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (_no_wait, "Nothing in your function waits"),
        (_no_last_wait, "before the device had finished"),
        (_wait_in_every_step, "You wait for the device in every step"),
        (_warm_up_still_running, "still busy with it"),
        (lambda gpu, step, clock: _timed(gpu, step, clock, warm_up=0) / 30, "The first step is in"),
        (lambda gpu, step, clock: _timed(gpu, step, clock) / 30e3, "those are seconds"),
        (lambda gpu, step, clock: _timed(gpu, step, clock), "all the steps together"),
        (lambda gpu, step, clock: _timed(gpu, step, clock) / 40, "more steps than you timed"),
        (lambda gpu, step, clock: _timed(gpu, step, clock, count=1), "With few steps"),
        (lambda gpu, step, clock: print(gpu), "not a number"),
        (_never, "never calls step()"),
        (_real_clock, "has a clock of its own"),
    ],
)
def test_a_wrong_timing_is_explained(attempt: Callable[..., Any], misconception: str) -> None:
    assert_refused(check("03.1", attempt), misconception)


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    return Clinic(7, tmp_path)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    """Return a clinic that was asked once."""
    clinic = Clinic(7, tmp_path_factory.mktemp("clinic"))
    causes = discharge(clinic)
    next(loop for loop in clinic if causes[loop.name] == "storage").step_alone()
    return clinic


def test_a_clinic_without_answers_is_not_attempted(clinic: Clinic) -> None:
    assert check("03.2", clinic, dict.fromkeys(NAMES, ...)).status == "todo"
    assert check("03.2", clinic, {"A": "cpu"}).status == "todo"


def test_guessing_is_not_measuring(clinic: Clinic) -> None:
    assert_refused(check("03.2", clinic, discharge(clinic)), "not used a single probe")


def test_six_right_causes_are_praised_with_their_probes(asked: Clinic) -> None:
    verdict = check("03.2", asked, discharge(asked))
    assert verdict.status == "right"
    assert "All six, with 1 probe." in verdict.message


def test_a_word_that_is_no_cause_is_named(asked: Clinic) -> None:
    assert_refused(check("03.2", asked, {**discharge(asked), "A": "disk"}), "'disk' is not among")


@pytest.mark.parametrize(("said", "true"), list(permutations(CAUSES, 2)))
def test_every_mistaken_cause_is_explained(said: str, true: str, asked: Clinic) -> None:
    answers = discharge(asked)
    place = next(name for name, cause in answers.items() if cause == true)
    verdict = check("03.2", asked, {**answers, place: said})
    assert_refused(verdict, f"5 of 6 causes are right. Of one that you call {said!r}:")
    assert "fits another cause better" not in verdict.message


def test_the_flaws_are_found() -> None:
    assert check("03.3", set(FLAWS)).status == "right"
    assert check("03.3", "d, b, a, c").status == "right"


def test_flaws_left_open_are_not_attempted() -> None:
    assert check("03.3", ...).status == "todo"


@pytest.mark.parametrize("letter", [*FLAWS, *SOUND])
def test_a_statement_judged_wrong_is_explained(letter: str) -> None:
    reason = {**FLAWS, **SOUND}[letter]
    assert_refused(check("03.3", set(FLAWS) ^ {letter}), reason)


@pytest.mark.parametrize("answer", [{"a", "z"}, set(), ["a"]])
def test_an_unfinished_list_of_flaws_isassert_refused(answer: Any) -> None:
    assert check("03.3", answer).status == "wrong"


TOOLS = {question: tool for question, (tool, _) in QUESTIONS.items()}


def test_the_tools_are_known() -> None:
    assert check("03.4", TOOLS).status == "right"


def test_tools_left_open_are_not_attempted() -> None:
    assert check("03.4", {**TOOLS, "file": ...}).status == "todo"


@pytest.mark.parametrize(
    ("question", "said", "misconception"),
    [
        ("line", "torch.profiler", "not the workers"),
        ("cores", "pressure", "the whole machine"),
        ("bytes", "pressure", "not of bytes"),
        ("stall", "iotop", "not yet a wait"),
        ("file", "iotop", "which file they came from"),
        ("kernel", "top", "Only the profiler"),
        ("kernel", "htop2", "not among the tools"),
    ],
)
def test_a_wrong_tool_is_explained(question: str, said: str, misconception: str) -> None:
    assert_refused(check("03.4", {**TOOLS, question: said}), misconception)
