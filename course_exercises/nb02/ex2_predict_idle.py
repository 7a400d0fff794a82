"""Exercise 02.2: the idle share of a GPU, from four numbers."""

from collections.abc import Callable

import numpy as np

from course_exercises.judging import Kind, Slips, judge_rule, read_number
from course_utils.teaching.exercise import Verdict, exercise, expect, wrong

# Times L to load a batch and C to compute it in ms, W workers, P batches that can load at a time.
Loop = tuple[int, int, int, int]
Time = Callable[[float, float, int, int], float]

SIX_LOOPS: tuple[Loop, ...] = (
    (80, 50, 0, 2),
    (80, 50, 1, 2),
    (80, 50, 2, 2),
    (240, 50, 8, 2),
    (240, 50, 2, 8),
    (20, 100, 4, 4),
)
# An idle share rounded to two digits is right, a whole number of milliseconds for L / W is not.
# Quick loading without workers makes the GPU wait too; three workers on two cores are as two; and
# what was worked out for the same three numbers is another loop's if P is another. Where one batch
# loads at a time, it still does so while the GPU computes.
UNEVEN: tuple[Loop, ...] = (
    (59, 15, 3, 2),
    (23, 5, 4, 8),
    (20, 100, 0, 4),
    (80, 50, 2, 1),
    (20, 50, 1, 1),
)
WITHIN = 0.0051


def true_idle(loop: Loop) -> float:
    """Return the idle share that the model predicts."""
    return _idle_if(lambda L, C, w, p: max(C, L / min(w, p)) if w else L + C)(loop)


def _idle_if(total_ms: Time) -> Callable[[Loop], float]:
    """Return the idle share under an idea of how long a step lasts."""
    return lambda loop: 1 - loop[1] / total_ms(*loop)


_MAX = "With workers T = max(C, L / min(W, P))."
_SERIAL = "Add a line for num_workers == 0: T = L + C."
_SLIPS: Slips[Loop, float] = {
    "These are percentages; a share lies between 0 and 1.": (
        "Leave out the factor 100.",
        lambda loop: 100 * true_idle(loop),
    ),
    "That is the share in which the GPU computes.": (
        "Idle is what it lacks to 1.",
        lambda loop: 1 - true_idle(loop),
    ),
    "You divided the wait by the compute time. A share of the time is a share of the whole step.": (
        "Divide by T: idle = 1 - C / T.",
        lambda loop: true_idle(loop) / (1 - true_idle(loop)),
    ),
    "You add load and compute time with workers, too. Workers load while the GPU computes, so the "
    "slower of the two sets the pace.": (
        _MAX,
        _idle_if(lambda L, C, w, p: C + (L / min(w, p) if w else L)),
    ),
    "You leave the workers out: with them loading and computing overlap.": (
        _MAX,
        _idle_if(lambda L, C, w, p: L + C),
    ),
    "You let every worker count, but eight workers on two cores do the work of two.": (
        "Divide L by min(W, P).",
        _idle_if(lambda L, C, w, p: max(C, L / w) if w else L + C),
    ),
    "You let the main process load, too. With workers it only takes what they have made.": (
        "Divide L by min(W, P).",
        _idle_if(lambda L, C, w, p: max(C, L / min(w + 1, p)) if w else L + C),
    ),
    "You divide by what the machine could do at a time, even where there are fewer workers.": (
        "Divide L by min(W, P).",
        _idle_if(lambda L, C, w, p: max(C, L / p) if w else L + C),
    ),
    "You keep one core free. P is what can load at a time as it is, that core left out.": (
        "Divide L by min(W, P).",
        _idle_if(lambda L, C, w, p: max(C, L / max(1, min(w, p - 1))) if w else L + C),
    ),
    "You treat 0 workers as 1. With 0 workers the loop itself loads, so nothing overlaps.": (
        _SERIAL,
        _idle_if(lambda L, C, w, p: max(C, L / min(max(w, 1), p))),
    ),
    "You cut L / min(W, P) off to whole milliseconds: `//` drops the rest of a division.": (
        "Divide with `/`.",
        _idle_if(lambda L, C, w, p: max(C, L // min(w, p)) if w else L + C),
    ),
    "Your idle share is negative where loading is the faster part. A step is never shorter than "
    "its compute time.": (_MAX, _idle_if(lambda L, C, w, p: L / min(w, p) if w else L + C)),
}


@exercise("02.2", title="Predict the idle share")
def predict_idle(predict: Time) -> Verdict:
    """Expect the model of the notebook, for six loops and sixteen hidden ones."""
    hidden = np.random.default_rng(2).integers((10, 10, 0, 1), (400, 120, 9, 9), (11, 4))
    try:
        return judge_rule(
            lambda loop: predict(*loop),
            cases=[*SIX_LOOPS, *UNEVEN, *map(tuple, hidden.tolist())],
            truth=true_idle,
            slips=_SLIPS,
            answer=Kind(_read, lambda idle, other: abs(idle - other) <= WITHIN),
            praise="Six cases that you have seen and sixteen that you have not. Two times and two "
            "counts say how long a GPU will wait.",
            otherwise=_explain,
        )
    except ZeroDivisionError:
        return wrong("You divide by the number of workers, and there may be none.", _SERIAL)


def _read(_: Loop, idle: object) -> float:
    expect(
        idle is not None,
        "Your function returns nothing in some cases. What it prints, nobody else can use.",
        "End every way through it with `return`.",
    )
    refusal = f"Your function returns {idle!r}, not a number."
    return read_number(idle, refusal, "Return the share itself, such as 0.375.")


def _explain(loop: Loop, idle: float, _: float) -> tuple[str, str]:
    load, step, workers, parallel = loop
    return (
        f"With L = {load} ms, C = {step} ms, W = {workers} and P = {parallel} you return "
        f"{idle:.2f}, which is not 1 - C / T.",
        "Work out the time T of a step on paper for this case.",
    )
