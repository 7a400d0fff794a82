"""The checks of notebook 02: what is right passes, and each known slip is named."""

from collections.abc import Callable

import pytest

from course_utils.teaching.exercise import check
from notebooks.exercises.nb02.ex2_predict_idle import SIX_LOOPS as SIX_CASES
from notebooks.exercises.nb02.ex2_predict_idle import true_idle
from tests.exercises.answers import assert_refused

BAR = (10_000_000, 1007.2, 10.07)
MONEY = (1512.0, 1763.1, 5.44)


@pytest.mark.parametrize("answers", [(..., ..., ...), (10_000_000, ..., ...), (None, 1, 1)])
@pytest.mark.parametrize("key", ["02.1", "02.4"])
def test_unwritten_numbers_are_not_attempted(key: str, answers: tuple[object, ...]) -> None:
    assert check(key, *answers).status == "todo"


@pytest.mark.parametrize(
    "answers", [BAR, (1e7, 10 * 100.72, 111.39 / 128 / 0.0864), (10_000_000, 1007, 10)]
)
def test_the_bar_is_read_right(answers: tuple[float, ...]) -> None:
    assert check("02.1", *answers).status == "right"


@pytest.mark.parametrize(
    ("place", "answer", "misconception"),
    [
        (0, 1_000_000, "what the plan says"),
        (0, 78_125, "the steps, not the events"),
        (0, 78_125 / 128, "divided the steps"),
        (0, 5, "not what the figures say"),
        (0, "10 million", "is '10 million', not a number"),
        (1, 100.72, "belongs to one epoch"),
        (1, 10, "the hope"),
        (2, 100.72, "days with days"),
        (2, 1007, "compared the whole runs"),
        (2, 1.007, "small run one epoch"),
        (2, 0.0993, "turn the ratio round"),
    ],
)
def test_a_misread_bar_is_explained(place: int, answer: object, misconception: str) -> None:
    answers = [*BAR[:place], answer, *BAR[place + 1 :]]
    assert_refused(check("02.1", *answers), misconception)


@pytest.mark.parametrize("month", [3 * 24 * 30 * 0.7, 3 * 24 * 31 * 0.7, 3 * 730 * 0.7])
def test_a_month_may_have_30_or_31_days(month: float) -> None:
    assert check("02.4", month, *MONEY[1:]).status == "right"


@pytest.mark.parametrize(
    ("place", "answer", "misconception"),
    [
        (0, 18_396, "That is a year, 12 times too much"),
        (0, 18_000, "That is a year, 12 times too much"),
        (0, 2_160, "the whole bill"),
        (0, 648, "price of the useful time"),
        (1, 1_974.7, "waste against 100 %"),
        (1, 1_410.5, "subtracted percentages"),
        (1, 1_057.9, "still costs"),
        (1, 643_540, "one day"),
        (1, 720_765, "against 100 %, which nobody reaches"),
        (2, 1.63, "any hour"),
        (2, 2.04, "all is mended"),
        (2, 0.49, "multiplied"),
        (2, 2.33, "divided by the idle share"),
        (2, 391.8, "whole rack"),
    ],
)
def test_a_wrong_bill_is_explained(place: int, answer: float, misconception: str) -> None:
    answers = [*MONEY[:place], answer, *MONEY[place + 1 :]]
    assert_refused(check("02.4", *answers), misconception)


def predict_idle(load_ms: float, step_ms: float, num_workers: int, parallel: int) -> float:
    if num_workers == 0:
        return load_ms / (load_ms + step_ms)
    return max(0.0, 1 - step_ms * min(num_workers, parallel) / load_ms)


def unwritten_model(load_ms: float, step_ms: float, num_workers: int, parallel: int) -> float:
    """Return the share of the time in which the GPU waits."""
    ...


def test_the_six_cases_cover_what_can_limit_a_loop() -> None:
    shares = [round(true_idle(case), 2) for case in SIX_CASES]
    assert shares == [0.62, 0.38, 0.0, 0.58, 0.58, 0.0]


def test_a_model_written_otherwise_is_right() -> None:
    assert check("02.2", predict_idle).status == "right"


def test_an_unwritten_model_is_not_attempted() -> None:
    assert check("02.2", unwritten_model).status == "todo"


def _serial(load: float, step: float, w: int, p: int) -> float:
    return 1 - step / (load + step)


def _sum(load: float, step: float, w: int, p: int) -> float:
    return 1 - step / (step + (load / min(w, p) if w else load))


def _every_worker(load: float, step: float, w: int, p: int) -> float:
    return 1 - step / (max(step, load / w) if w else load + step)


def _machine_only(load: float, step: float, w: int, p: int) -> float:
    return 1 - step / (max(step, load / p) if w else load + step)


def _zero_is_one(load: float, step: float, w: int, p: int) -> float:
    return 1 - step / max(step, load / min(max(w, 1), p))


def _negative(load: float, step: float, w: int, p: int) -> float:
    return 1 - step / (load / min(w, p) if w else load + step)


def _no_zero(load: float, step: float, w: int, p: int) -> float:
    return 1 - step / max(step, load / min(w, p))


def _of_compute(load: float, step: float, w: int, p: int) -> float:
    return (max(step, load / min(w, p)) if w else load + step) / step - 1


@pytest.mark.parametrize(
    ("model", "misconception"),
    [
        (lambda *case: 100 * predict_idle(*case), "percentages"),
        (lambda *case: 1 - predict_idle(*case), "in which the GPU computes"),
        (_of_compute, "divided the wait by the compute time"),
        (_sum, "add load and compute time with workers"),
        (_serial, "leave the workers out"),
        (_every_worker, "eight workers on two cores"),
        (_machine_only, "fewer workers"),
        (_zero_is_one, "treat 0 workers as 1"),
        (_negative, "never shorter"),
        (_no_zero, "divide by the number of workers"),
        (lambda *case: 0.5, "L = 80 ms, C = 50 ms, W = 0 and P = 2 you return 0.50"),
        (lambda *case: print(case), "returns nothing"),
        (lambda load, step: 0.5, "cannot use your answer"),
    ],
)
def test_a_wrong_model_is_explained(model: Callable[..., float], misconception: str) -> None:
    assert_refused(check("02.2", model), misconception)


def waiting_share(load_over_compute: float) -> tuple[float, float]:
    x = load_over_compute
    return max(0.0, (x - 1) / x), x / (1 + x)


def unwritten_share(load_over_compute: float) -> tuple[float, float]:
    """Return the waiting share with one worker, and without workers."""
    ...


def test_the_shares_of_the_slide_are_put_right() -> None:
    assert check("02.3", waiting_share).status == "right"


def test_unwritten_shares_are_not_attempted() -> None:
    assert check("02.3", unwritten_share).status == "todo"


@pytest.mark.parametrize(
    ("shares", "misconception"),
    [
        (lambda x: (max(0, x - 1), x / (1 + x)), "30 % is the wait divided by the compute time"),
        (lambda x: (1 - 1 / x, x / (1 + x)), "share with a worker is negative"),
        (lambda x: (max(0, 1 - 1 / x),) * 2, "the same share twice"),
        (lambda x: (x / (1 + x), max(0, 1 - 1 / x)), "the wrong way round"),
        (lambda x: (100 * max(0, 1 - 1 / x), 100 * x / (1 + x)), "percentages"),
        (lambda x: (x / (1 + x), x / (1 + x)), "with a worker. It loads while"),
        (lambda x: (max(0, 1 - 1 / x), 0.5), "return 0.50 without workers"),
        (lambda x: 0.23, "returns 0.23, not two shares"),
    ],
)
def test_wrong_shares_are_explained(
    shares: Callable[[float], tuple[float, float]], misconception: str
) -> None:
    assert_refused(check("02.3", shares), misconception)
