"""The checks of notebook 03: typical slips are named, other right ways pass."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from notebooks.exercises.nb03.ex3_list_the_flaws import FLAWS, SOUND
from notebooks.exercises.nb03.ex4_choose_tools import QUESTIONS
from notebooks.stories.clinic import CAUSES, NAMES, Clinic, discharge
from tests.exercises.solutions import Change, Wrong, assert_refused, judge, wrong_answers

WAIT = "    gpu.synchronize()\n"
START, LAST = f"{WAIT}    start", f"{WAIT}    return"
PER_STEP = "return 1000 * (clock() - start) / count"

WRONG: Wrong = {
    "03.1": [
        ("Nothing in your function waits", (WAIT, "")),
        ("before the device had finished", (LAST, "    return")),
        (
            "You wait for the device in every step",
            ("count):\n        step()", "count):\n        step().item()"),
        ),
        ("still busy with it", (START, "    start")),
        ("The first step is in", ("range(3)", "range(0)")),
        ("those are seconds", ("1000 * ", "")),
        ("all the steps together", (" / count", "")),
        ("more steps than you timed", (" / count", " / (1.4 * count)")),
        ("With few steps", ("count = 50", "count = 1")),
        ("not a number", (PER_STEP, "print(start)")),
        ("never calls step()", ("        step()", "        pass")),
        ("has a clock of its own", ("clock()", "time.perf_counter()")),
    ],
}


@pytest.mark.parametrize(("key", "misconception", "changes"), wrong_answers(WRONG))
def test_a_wrong_timing_is_explained(
    key: str, misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge(key, folder, *changes), misconception)


@pytest.mark.parametrize("count", [12, 200])
def test_any_number_of_steps_will_do(count: int, folder: Path) -> None:
    assert judge("03.1", folder, ("count = 50", f"count = {count}")).status == "right"


def test_events_of_the_device_will_do(folder: Path) -> None:
    events = [
        (
            "start = clock()",
            "start, end = (gpu.Event(enable_timing=True) for _ in range(2))\n    start.record()",
        ),
        (LAST, "    end.record()\n    end.synchronize()\n    return"),
        (PER_STEP, "return start.elapsed_time(end) / count"),
    ]
    assert judge("03.1", folder, *events).status == "right"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    """Return a clinic that was asked once."""
    clinic = Clinic(7, tmp_path_factory.mktemp("clinic"))
    causes = discharge(clinic)
    next(loop for loop in clinic if causes[loop.name] == "storage").step_alone()
    return clinic


def test_a_clinic_without_answers_is_not_attempted(asked: Clinic) -> None:
    assert check("03.2", asked, dict.fromkeys(NAMES, ...)).status == "todo"
    assert check("03.2", asked, {"A": "cpu"}).status == "todo"


def test_guessing_is_not_measuring(tmp_path: Path) -> None:
    clinic = Clinic(7, tmp_path)
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


def test_the_flaws_may_be_listed_in_a_text() -> None:
    assert check("03.3", "d, b, a, c").status == "right"


@pytest.mark.parametrize("letter", [*FLAWS, *SOUND])
def test_a_statement_judged_wrong_is_explained(letter: str) -> None:
    reason = {**FLAWS, **SOUND}[letter]
    assert_refused(check("03.3", set(FLAWS) ^ {letter}), reason)


@pytest.mark.parametrize("answer", [{"a", "z"}, set(), ["a"]])
def test_an_unfinished_list_of_flaws_is_refused(answer: Any) -> None:
    assert check("03.3", answer).status == "wrong"


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
    tools = {question: tool for question, (tool, _) in QUESTIONS.items()}
    assert_refused(check("03.4", {**tools, question: said}), misconception)
