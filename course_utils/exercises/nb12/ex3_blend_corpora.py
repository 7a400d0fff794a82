"""Exercise 12.3: choose the corpus of each sample, so that the shares are right at every moment."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from keepfed.formatting import plural

Make = Callable[[list[float], list[int], int], Any]

FARTHEST = 2  # samples from the share; a plain solution may be off by more than 1
HOW = "For each sample, ask which corpus is farthest behind its share."


class BlendCase(NamedTuple):
    """Weights, the samples before the first turn, and the number of turns."""

    weights: list[float]
    samples: int
    before: int = 0
    skewed: tuple[int, ...] = ()  # counts before the first turn, far from the shares

    @property
    def served(self) -> list[int]:
        """Return what each corpus has served before, by default its share in whole samples."""
        if self.skewed:
            return [*self.skewed]
        edges = np.cumsum([0, *self.weights]) / sum(self.weights) * self.before
        return [int(one) for one in np.diff(np.round(edges))]

    def __str__(self) -> str:
        after = f" after {self.served}" if any(self.served) else ""
        return f"the weights {self.weights} and {plural(self.samples, 'sample')}{after}"


CASES = (
    BlendCase([1, 1, 1], 12),
    BlendCase([0.5, 0.3, 0.2], 1_003),  # no share is a whole number
    BlendCase([0.99, 0.01], 1_000),
    BlendCase([2, 1, 1], 400),
    BlendCase([1, 0, 1], 20_000),
    BlendCase([7, 2, 1, 1], 1_234),
    BlendCase([0.9, *[0.01] * 10], 1_000),  # all small corpora are due at the same time
    BlendCase([*[0.01] * 10, 0.9], 100),  # the largest corpus is not the first one
    BlendCase([0.70045, 0.29955], 80_000),  # shares of 4 digits, or of 16 bits, drift away
    BlendCase([5], 20),
    BlendCase([0.5, 0.5], 0),
    BlendCase([0.5, 0.3, 0.2], 1_000, before=7),
    BlendCase([1, 1], 100, skewed=(40, 0)),
    *(BlendCase([0.6, 0.4], 300, before) for before in (100_000, 2**25, 10**11)),
)


AGAIN, NEVER, OFF = "a second call differs", "a corpus of weight 0 is served", "far from its share"


def _facts(case: BlendCase, said: Any, again: Any) -> dict[str, Any]:
    turns = np.asarray(said)
    expect(
        turns.shape == (case.samples,) and {*turns.tolist()} <= {*range(len(case.weights))},
        f"For {case} you return {said!r:.60}, but each sample needs the position of its corpus.",
        "Return one array with `count` whole numbers. 0 is the first corpus.",
    )
    shares = np.asarray(case.weights) / sum(case.weights)
    served = (turns[:, None] == np.arange(len(shares))).cumsum(axis=0) + case.served
    n = sum(case.served) + np.arange(1, case.samples + 1)[:, None]
    off = np.abs(served - shares * n)
    off[: -1 if case.skewed else 0] = 0  # it takes a while to catch up
    when, which = np.unravel_index(np.argmax(off), off.shape) if off.size else (0, 0)
    found = off.size and (
        f"after sample {n[when, 0]:,}, corpus {which} has served {served[when, which]:,}, but its "
        f"share is {shares[which] * n[when, 0]:,.1f}"
    )
    return {
        AGAIN: not np.array_equal(turns, np.asarray(again)),
        NEVER: 0 in [case.weights[turn] for turn in {*turns.tolist()}],
        OFF: found if off.max(initial=0) > FARTHEST else "",
    }


SLIPS = (
    Slip(
        lambda _, got, __: got[AGAIN],
        "For {case}, a second call returns something else. Either you draw at random, or you "
        "continue with what the first call has counted.",
        f"Count from `served` in each call, and draw nothing. {HOW}",
    ),
    Slip(
        lambda _, got, __: got[OFF],
        "For {case}, {got[far from its share]}.",
        f"Divide the weights by their sum, and count in 64 bits. {HOW}",
    ),
)


@exercise("12.3", title="Blend in exact proportions")
def blend_corpora(take_turns: Make) -> Verdict:
    """Judge for several weights which corpus each sample comes from."""

    def call(case: BlendCase) -> Any:
        weights, served = [*case.weights], case.served
        with process_unchanged(weights, served):
            return take_turns(weights, served, case.samples)

    compare(
        lambda case: _facts(
            case, turns := call(case), turns if case.samples > 2_000 else call(case)
        ),
        lambda case: {AGAIN: False, NEVER: False, OFF: ""},
        CASES,
        *SLIPS,
        show=str,
    )
    short, long = ([*call(BlendCase([5, 3, 2], count))] for count in (50, 97))
    expect(
        short == long[:50],
        "The first 50 of 97 turns are not the 50 turns of a shorter call. A training that is "
        "prolonged would have another order.",
        "Choose each turn from the counts alone, whatever `count` is.",
    )
    return right(
        "At every moment, each corpus has served its share to within two samples, for any weights, "
        "and after any number of samples."
    )
