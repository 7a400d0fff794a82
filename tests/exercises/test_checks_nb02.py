"""The checks of notebook 02: what is right passes, and each known slip is named."""

from pathlib import Path

import pytest

from course_utils.teaching.exercise import check
from notebooks.exercises.nb02.ex2_predict_idle import SIX_LOOPS, true_idle
from tests.exercises.solutions import Change, Wrong, assert_refused, judge, wrong_answers

BAR = (10_000_000, 1007.2, 10.07)
MONEY = (1512.0, 1763.1, 5.44)


@pytest.mark.parametrize("answers", [(10_000_000, ..., ...), (None, 1, 1)])
@pytest.mark.parametrize("key", ["02.1", "02.4"])
def test_numbers_half_written_are_not_attempted(key: str, answers: tuple[object, ...]) -> None:
    assert check(key, *answers).status == "todo"


def test_the_bar_may_be_read_with_rounded_numbers() -> None:
    assert check("02.1", 10_000_000, 1007, 10).status == "right"


@pytest.mark.parametrize("month", [3 * 24 * 31 * 0.7, 3 * 730 * 0.7])
def test_a_month_may_have_31_days_or_be_a_twelfth_of_a_year(month: float) -> None:
    assert check("02.4", month, *MONEY[1:]).status == "right"


@pytest.mark.parametrize(
    ("key", "place", "answer", "misconception"),
    [
        ("02.1", 0, 1_000_000, "what the plan says"),
        ("02.1", 0, 78_125, "the steps, not the events"),
        ("02.1", 0, 78_125 / 128, "divided the steps"),
        ("02.1", 0, 5, "not what the figures say"),
        ("02.1", 0, "10 million", "is '10 million', not a number"),
        ("02.1", 1, 100.72, "belongs to one epoch"),
        ("02.1", 1, 10, "the hope"),
        ("02.1", 2, 100.72, "days with days"),
        ("02.1", 2, 1007, "compared the whole runs"),
        ("02.1", 2, 1.007, "small run one epoch"),
        ("02.1", 2, 0.0993, "turn the ratio round"),
        ("02.4", 0, 18_396, "That is a year, 12 times too much"),
        ("02.4", 0, 18_000, "That is a year, 12 times too much"),
        ("02.4", 0, 2_160, "the whole bill"),
        ("02.4", 0, 648, "price of the useful time"),
        ("02.4", 1, 1_974.7, "waste against 100 %"),
        ("02.4", 1, 1_410.5, "subtracted percentages"),
        ("02.4", 1, 1_057.9, "still costs"),
        ("02.4", 1, 643_540, "one day"),
        ("02.4", 1, 720_765, "against 100 %, which nobody reaches"),
        ("02.4", 2, 1.63, "any hour"),
        ("02.4", 2, 2.04, "all is mended"),
        ("02.4", 2, 0.49, "multiplied"),
        ("02.4", 2, 2.33, "divided by the idle share"),
        ("02.4", 2, 391.8, "whole rack"),
    ],
)
def test_a_wrong_number_is_explained(
    key: str, place: int, answer: object, misconception: str
) -> None:
    answers: list[object] = [*(BAR if key == "02.1" else MONEY)]
    answers[place] = answer
    assert_refused(check(key, *answers), misconception)


OVERLAPPED = "max(step_ms, load_ms / min(num_workers, parallel))"
SERIAL = "load_ms + step_ms"
IDLE = "return 1 - step_ms / total_ms"
WITH_WORKER = "1 - 1 / max(1, load_over_compute)"
OF_COMPUTE = "30 % is the wait divided by the compute time"
BOTH = "return with_worker, without"

WRONG: Wrong = {
    "02.2": [
        ("percentages", (IDLE, "return 100 * (1 - step_ms / total_ms)")),
        ("in which the GPU computes", (IDLE, "return step_ms / total_ms")),
        ("divided the wait by the compute time", (IDLE, "return total_ms / step_ms - 1")),
        (
            "add load and compute time with workers",
            ("max(step_ms, load_ms /", "(step_ms + load_ms /"),
        ),
        ("leave the workers out", (OVERLAPPED, SERIAL)),
        ("eight workers on two cores", ("min(num_workers, parallel)", "num_workers")),
        ("fewer workers", ("min(num_workers, parallel)", "parallel")),
        ("treat 0 workers as 1", (SERIAL, "max(step_ms, load_ms)")),
        ("never shorter", (OVERLAPPED, "load_ms / min(num_workers, parallel)")),
        ("divide by the number of workers", ("num_workers == 0", "num_workers < 0")),
        ("L = 80 ms, C = 50 ms, W = 0 and P = 2 you return 0.50", (IDLE, "return 0.5")),
        ("returns nothing", (IDLE, "print(total_ms)")),
        ("cannot use your answer", (", num_workers: int, parallel: int", "")),
    ],
    "02.3": [
        (OF_COMPUTE, (WITH_WORKER, "load_over_compute - 1")),
        (OF_COMPUTE, (WITH_WORKER, "max(0, load_over_compute - 1)")),
        ("share with a worker is negative", ("max(1, load_over_compute)", "load_over_compute")),
        ("the same share twice", (BOTH, "return with_worker, with_worker")),
        ("the wrong way round", (BOTH, "return without, with_worker")),
        ("percentages", (BOTH, "return 100 * with_worker, 100 * without")),
        ("percentages", (BOTH, "return with_worker, 100 * without")),
        ("with a worker. It loads while", (BOTH, "return without, without")),
        ("return 0.50 without workers", (BOTH, "return with_worker, 0.5")),
        ("returns 0.23, not two shares", (BOTH, "return 0.23")),
    ],
}


@pytest.mark.parametrize(("key", "misconception", "changes"), wrong_answers(WRONG))
def test_a_wrong_function_is_explained(
    key: str, misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge(key, folder, *changes), misconception)


def test_a_model_or_a_share_written_otherwise_is_right(folder: Path) -> None:
    clipped = "max(0.0, 1 - step_ms * min(num_workers or 1, parallel) / load_ms)"
    otherwise = (IDLE, f"return {clipped} if num_workers else load_ms / total_ms")
    assert judge("02.2", folder, otherwise).status == "right"
    otherwise = (WITH_WORKER, "max(0, 1 - 1 / load_over_compute)")
    assert judge("02.3", folder, otherwise).status == "right"


def test_the_six_loops_cover_what_can_limit_a_loop() -> None:
    shares = [round(true_idle(loop), 2) for loop in SIX_LOOPS]
    assert shares == [0.62, 0.38, 0.0, 0.58, 0.58, 0.0]
