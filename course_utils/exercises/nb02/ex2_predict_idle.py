"""Exercise 02.2: predict the idle share of a GPU from four numbers."""

from collections.abc import Callable
from typing import NamedTuple

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
OTHERS = (
    LoopTimes(59, 15, 3, 2),  # three workers on two cores are as fast as two
    LoopTimes(23, 5, 4, 8),  # L / W is not a whole number
    LoopTimes(0.9, 0.4, 1, 2),  # the times are not whole numbers
    LoopTimes(20, 100, 0, 4),  # fast loading without workers makes the GPU wait, too
    LoopTimes(80, 50, 2, 1),  # the same three numbers as above, with another P
    LoopTimes(20, 50, 1, 1),  # a single batch at a time still loads while the GPU computes
    LoopTimes(0, 50, 0, 1),  # nothing to load
    LoopTimes(900_000, 70, 300, 200),  # a large machine
    LoopTimes(900_000, 4_000, 200, 300),
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
    "You add load time and compute time even with workers. Workers load while the GPU computes, so "
    "the slower of the two limits the loop.": (
        _MAX,
        _idle_if(lambda L, C, w, p: C + (L / min(w, p) if w else L)),
    ),
    "You count every worker, but eight workers on two cores are as fast as two.": (
        "Compare W with P, and see which of them limits the loading.",
        _idle_if(lambda L, C, w, p: max(C, L / w) if w else L + C),
    ),
    "You treat 0 workers as 1. With 0 workers, the loop itself loads, so nothing overlaps.": (
        "Add a line for num_workers == 0: T = L + C.",
        _idle_if(lambda L, C, w, p: max(C, L / min(max(w, 1), p))),
    ),
    "Your idle share is negative if loading is faster than computing. A step never takes less time "
    "than its computation.": (
        _MAX,
        _idle_if(lambda L, C, w, p: L / min(w, p) if w and L else L + C),
    ),
}


@exercise("02.2", title="Predict the idle share", seconds=30)
def predict_idle(predict: Time) -> Verdict:
    """Check the model of the notebook with six known loops and hidden ones."""
    cases = [*SIX_LOOPS, *OTHERS]
    return judge_rule(
        lambda loop: predict(*loop),
        cases=cases,
        truth=true_idle,
        slips=_SLIPS,
        answer=Kind(_read, lambda idle, other: abs(idle - other) <= WITHIN),
        praise=f"Your model predicts all {len(cases)} loops, six known ones and the hidden ones. "
        "Four numbers tell you how long a GPU will wait.",
        call=_call,
    )


def _read(loop: LoopTimes, idle: object) -> float:
    refusal = f"For {_call(loop)}, your function returns {idle!r}, not a number."
    return read_number(idle, refusal, "Return the share itself, such as 0.375, in every case.")


def _call(loop: LoopTimes) -> str:
    return f"predict_idle{tuple(loop)}"
