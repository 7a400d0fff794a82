"""Judge the exercises of notebook 02 that turn the model of a step into code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isclose
from typing import NamedTuple

import numpy as np

from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong
from course_utils.words import percent

Predict = Callable[[float, float, int, int], float]

CLOSE = 0.005


class Case(NamedTuple):
    """A loop: times in ms, workers, and how many batches the machine can load at a time."""

    load_ms: int
    step_ms: int
    num_workers: int
    parallel: int


SIX_CASES = (
    Case(80, 50, 0, 2),
    Case(80, 50, 1, 2),
    Case(80, 50, 2, 2),
    Case(240, 50, 8, 2),
    Case(240, 50, 2, 8),
    Case(20, 100, 4, 4),
)


def true_idle(case: Case) -> float:
    """Return the idle share that the model predicts."""
    load, step, workers, parallel = case
    return 1 - step / (max(step, load / min(workers, parallel)) if workers else load + step)


def _with_step_time(total_ms: Callable[[float, float, int, int], float]) -> Callable[[Case], float]:
    """Return the idle share under another idea of how long a step lasts."""
    return lambda case: 1 - case.step_ms / total_ms(*case)


_MAX = "With workers T = max(C, L / min(W, P))."
_SERIAL = "Add a line for num_workers == 0: T = L + C."
_MISCONCEPTIONS: tuple[tuple[Callable[[Case], float], str, str], ...] = (
    (
        lambda case: 100 * true_idle(case),
        "These are percentages; a share lies between 0 and 1.",
        "Leave out the factor 100.",
    ),
    (
        lambda case: 1 - true_idle(case),
        "That is the share in which the GPU computes.",
        "Idle is what it lacks to 1.",
    ),
    (
        lambda case: true_idle(case) / (1 - true_idle(case)),
        "You divided the wait by the compute time. A share of the time is a share of the whole "
        "step.",
        "Divide by T: idle = 1 - C / T.",
    ),
    (
        _with_step_time(lambda load, step, w, p: step + (load / min(w, p) if w else load)),
        "You add load and compute time with workers, too. Workers load while the GPU computes, so "
        "the slower of the two sets the pace.",
        _MAX,
    ),
    (
        _with_step_time(lambda load, step, w, p: load + step),
        "You leave the workers out: with them loading and computing overlap.",
        _MAX,
    ),
    (
        _with_step_time(lambda load, step, w, p: max(step, load / w) if w else load + step),
        "You let every worker count, but eight workers on two cores do the work of two.",
        "Divide L by min(W, P).",
    ),
    (
        _with_step_time(lambda load, step, w, p: max(step, load / p) if w else load + step),
        "You divide by what the machine could do at a time, even where there are fewer workers.",
        "Divide L by min(W, P).",
    ),
    (
        _with_step_time(lambda load, step, w, p: max(step, load / min(max(w, 1), p))),
        "You treat 0 workers as 1. With 0 workers the loop itself loads, so nothing overlaps.",
        _SERIAL,
    ),
    (
        _with_step_time(lambda load, step, w, p: load / min(w, p) if w else load + step),
        "Your idle share is negative where loading is the faster part. A step is never shorter "
        "than its compute time.",
        _MAX,
    ),
)


@exercise("02.2", title="Predict the idle share")
def check_model(predict_idle: Predict) -> Verdict:
    """Expect the model of the notebook, for cases the learner has seen and others."""
    cases = [*SIX_CASES, *_hidden_cases(12)]
    try:
        returned = [predict_idle(*case) for case in cases]
    except ZeroDivisionError:
        return wrong("You divide by the number of workers, and there may be none.", _SERIAL)
    expect(
        None not in returned,
        "Your function returns nothing in some cases. What it prints, nobody else can use.",
        "End every way through it with `return`.",
    )
    answers = np.array(returned, dtype=float)
    close = np.isclose(answers, [true_idle(case) for case in cases], rtol=0, atol=CLOSE)
    if close.all():
        return right(
            "Six cases that you have seen and twelve that you have not. Two times and two counts "
            "say how long a GPU will wait."
        )
    for idle, misconception, next_step in _MISCONCEPTIONS:
        if np.allclose(answers, [idle(case) for case in cases], rtol=0, atol=CLOSE):
            return wrong(misconception, next_step)
    first = int(np.argmin(close))
    load, step, workers, parallel = cases[first]
    return wrong(
        f"With L = {load} ms, C = {step} ms, W = {workers} and P = {parallel} you return "
        f"{answers[first]:.2f}, which is not 1 - C / T.",
        "Work out the time T of a step on paper for this case.",
    )


def _hidden_cases(count: int) -> Sequence[Case]:
    rng = np.random.default_rng(2)
    low, high = (10, 10, 0, 1), (400, 120, 9, 9)
    return [Case(*row) for row in rng.integers(low, high, (count, 4)).tolist()]


@exercise("02.3", title="A ratio of 1.3")
def check_ratio(waiting_share: Callable[[float], tuple[float, float]]) -> Verdict:
    """Expect for a ratio load / compute the waiting shares with one worker and with none."""
    for load_over_compute in (1.3, 0.5, 1.0, 1.7, 4.0):
        shares = waiting_share(load_over_compute)
        expect(
            isinstance(shares, tuple) and len(shares) == 2,
            f"Your function returns {shares!r}, not two shares.",
            "End it with `return with_worker, without`.",
        )
        with_worker, without = shares
        _expect_overlapped(load_over_compute, with_worker, without)
        _expect_serial(load_over_compute, with_worker, without)
    return right(
        "At 1.3 the GPU waits 23 % of the time with a worker and 57 % without. The 30 % of the "
        "slide are a share of the compute time, which is not all of the time."
    )


def _expect_overlapped(ratio: float, share: float, other: float) -> None:
    expect(
        share <= 1 and other <= 1,
        "These are percentages; a share lies between 0 and 1.",
        "Leave out the factor 100.",
    )
    expect(
        ratio <= 1 or not isclose(share, ratio - 1, abs_tol=CLOSE),
        f"{percent(ratio - 1)} is the wait divided by the compute time, as on the slide. "
        "The question is for a share of all the time.",
        "Divide the wait by the time of the whole step.",
    )
    expect(
        share >= 0,
        f"At a ratio of {ratio:g} your share with a worker is negative. A worker that is faster "
        "than the GPU lets nobody wait, and a step still lasts as long as its compute time.",
        "The step lasts max(load, compute).",
    )
    truth = 1 - 1 / max(1.0, ratio)
    expect(
        not (isclose(other, truth, abs_tol=CLOSE) and share > other),
        "The two shares are the wrong way round: without workers the GPU waits longer.",
        "Return the share with a worker first.",
    )
    expect(
        isclose(share, truth, abs_tol=CLOSE),
        f"At a ratio of {ratio:g} you return {share:.2f} with a worker. It loads while the GPU "
        "computes, so the step lasts as long as the slower of the two.",
        "Set compute to 1 and load to the ratio; the wait is max(load, compute) - compute.",
    )


def _expect_serial(ratio: float, with_worker: float, share: float) -> None:
    how = "Set compute to 1 and load to the ratio: load / (load + compute)."
    expect(
        ratio <= 1 or not isclose(share, with_worker, abs_tol=CLOSE),
        "You return the same share twice, but without workers nothing overlaps.",
        how,
    )
    expect(
        isclose(share, ratio / (ratio + 1), abs_tol=CLOSE),
        f"At a ratio of {ratio:g} you return {share:.2f} without workers. The step lasts load + "
        "compute, and the GPU waits during all of the load.",
        how,
    )
