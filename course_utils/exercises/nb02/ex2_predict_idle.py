"""Exercise 02.2: predict the idle share of a GPU from four numbers."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from course_utils.exercises.judging import Kind, Slips, judge_rule, read_number
from course_utils.teaching.exercise import Verdict, exercise

Time = Callable[[float, float, int, int], float]


class LoopTimes(NamedTuple):
    """Times to load and to compute a batch in ms, workers, and batches that can load at a time."""

    L: float
    C: float
    W: int
    P: int


SIX_LOOPS = (
    LoopTimes(80, 50, 0, 2),
    LoopTimes(80, 50, 1, 2),
    LoopTimes(80, 50, 2, 2),
    LoopTimes(240, 50, 8, 2),
    LoopTimes(240, 50, 2, 8),
    LoopTimes(20, 100, 4, 4),
)
UNEVEN = (
    LoopTimes(59, 15, 3, 2),  # three workers on two cores are as fast as two
    LoopTimes(23, 5, 4, 8),  # L / W is not a whole number
    LoopTimes(0.9, 0.4, 1, 2),  # the times are not whole numbers
    LoopTimes(20, 100, 0, 4),  # fast loading without workers makes the GPU wait, too
    LoopTimes(80, 50, 2, 1),  # the same three numbers as above, with another P
    LoopTimes(20, 50, 1, 1),  # a single batch at a time still loads while the GPU computes
    LoopTimes(9_000, 70, 3, 3),  # a load may take long
)
WITHIN = 0.0051  # two digits are enough


def true_idle(loop: LoopTimes) -> float:
    """Return the idle share that the model predicts."""
    return _idle_if(lambda L, C, w, p: max(C, L / min(w, p)) if w else L + C)(loop)


def _idle_if(total_ms: Time) -> Callable[[LoopTimes], float]:
    """Return the idle share for a formula of the time of a step."""
    return lambda loop: 1 - loop.C / total_ms(*loop)


_MAX = "With workers T = max(C, L / min(W, P))."
_SLIPS: Slips[LoopTimes, float] = {
    "Your function returns percentages, but a share is between 0 and 1.": (
        "Remove the factor 100.",
        lambda loop: 100 * true_idle(loop),
    ),
    "This is the share of time in which the GPU computes.": (
        "Subtract it from 1.",
        lambda loop: 1 - true_idle(loop),
    ),
    "You divided the wait by the compute time. The idle share is a share of the complete step.": (
        "Divide by T: idle = 1 - C / T.",
        lambda loop: true_idle(loop) / (1 - true_idle(loop)),
    ),
    "You add load time and compute time even with workers. Workers load while the GPU computes, so "
    "the slower of the two limits the loop.": (
        _MAX,
        _idle_if(lambda L, C, w, p: C + (L / min(w, p) if w else L)),
    ),
    "You count every worker, but eight workers on two cores are as fast as two.": (
        "Divide L by min(W, P).",
        _idle_if(lambda L, C, w, p: max(C, L / w) if w else L + C),
    ),
    "You treat 0 workers as 1. With 0 workers, the loop itself loads, so nothing overlaps.": (
        "Add a line for num_workers == 0: T = L + C.",
        _idle_if(lambda L, C, w, p: max(C, L / min(max(w, 1), p))),
    ),
    "Your idle share is negative if loading is faster than computing. A step never takes less time "
    "than its computation.": (_MAX, _idle_if(lambda L, C, w, p: L / min(w, p) if w else L + C)),
}


@exercise("02.2", title="Predict the idle share", seconds=30)
def predict_idle(predict: Time) -> Verdict:
    """Check the model of the notebook with six known loops and hidden ones."""
    hidden = np.random.default_rng(2).integers((10, 10, 0, 1), (400, 120, 9, 9), (11, 4))
    cases = [*SIX_LOOPS, *UNEVEN, *(LoopTimes(*row) for row in hidden.tolist())]
    return judge_rule(
        lambda loop: predict(*loop),
        cases=cases,
        truth=true_idle,
        slips=_SLIPS,
        answer=Kind(_read, lambda idle, other: abs(idle - other) <= WITHIN),
        praise=f"Your model predicts all {len(cases)} loops, six known ones and the hidden ones. "
        "Four numbers tell you how long a GPU will wait.",
    )


def _read(loop: LoopTimes, idle: object) -> float:
    refusal = f"For {loop}, your function returns {idle!r}, not a number."
    return read_number(idle, refusal, "Return the share itself, such as 0.375, in every case.")
