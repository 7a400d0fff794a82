"""Exercise 12.3: whose turn it is, so that every corpus has its share at every moment."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.teaching.exercise import Verdict, exercise, expect, refuse, right
from keepfed.formatting import plural

Make = Callable[[list[float], int], Any]
Turns = NDArray[np.int64]

CASES: tuple[tuple[list[float], int], ...] = (
    ([0.5, 0.3, 0.2], 1_003),  # of which no share is whole
    ([1, 1, 1], 100),
    ([0.99, 0.01], 1_000),
    ([2, 1, 1], 400),  # shares in another unit
    ([0.02, 0.9, 0.08], 5_000),
    ([7, 2, 1, 1], 1_234),
    ([0.70045, 0.29955], 50_000),  # by which shares of 4 digits, or 16 bits, have drifted away
    ([0.9, *[0.01] * 10], 1_000),  # who looks at each corpus alone serves all small ones at once
    ([5], 20),
    ([0.5, 0.5], 0),
)
FARTHEST = 2  # samples from the share: who begins with the largest corpus may be off by more than 1
HOW = "At sample n, take the corpus for which share * (n + 1) - served is largest."


@exercise("12.3", title="Blend in exact proportions")
def blend_corpora(take_turns: Make) -> Verdict:
    """Judge for several weights which corpus each sample comes from."""
    for weights, count in CASES:
        given = list(weights)
        turns = _turns(take_turns, given, count)
        expect(
            given == weights,
            f"Your function changes the list that it is given: {weights} became {given}.",
            "Work on a copy: np.asarray(weights) / sum(weights) makes one.",
        )
        again = _turns(take_turns, given, count)
        _judge(turns, weights, take_turns, at_random=not np.array_equal(turns, again))
        expect(
            _farthest(again, weights) <= FARTHEST,
            f"Asked a second time for the weights {weights}, your function goes on from what it "
            "counted in the first call, and no corpus gets its share.",
            "Count from 0 in each call: served = np.zeros(len(share)), inside of the function.",
        )
    return right(
        "At every moment, each corpus has served its share to within two samples, whatever the "
        "weights are."
    )


def _turns(take_turns: Make, weights: list[float], count: int) -> Turns:
    case = f"For the weights {weights} and {plural(count, 'sample')}"
    said = take_turns(weights, count)
    turns = np.asarray(said)
    expect(
        turns.ndim == 1 and (turns.dtype.kind in "iu" or not turns.size),
        f"{case} you return {said!r:.60}, which is no row of numbers of corpora.",
        "Return one array of whole numbers: 0 for the first corpus.",
    )
    expect(
        len(turns) == count,
        f"{case} you return {len(turns):,} turns, and there is one for each sample. Shares that "
        "are rounded need not add up to the whole.",
        "Decide sample by sample, until there are `count`.",
    )
    expect(
        not count or 0 <= turns.min() <= turns.max() < len(weights),
        f"{case} you name corpus {turns.max() if count else 0}; they are counted from 0 to "
        f"{len(weights) - 1}.",
        "Return the position of the weight in the list.",
    )
    return turns.astype(np.int64)


def _off(turns: Turns, weights: Sequence[float]) -> tuple[Turns, NDArray[np.float64]]:
    """Return what each corpus has served after each sample, and how far that is from its share."""
    shares = np.asarray(weights, float) / sum(weights)
    served = (turns[:, None] == np.arange(len(shares))).cumsum(axis=0)
    return served, np.abs(served - shares * np.arange(1, len(turns) + 1)[:, None])


def _farthest(turns: Turns, weights: Sequence[float]) -> float:
    return float(_off(turns, weights)[1].max(initial=0))


def _judge(turns: Turns, weights: Sequence[float], take_turns: Make, *, at_random: bool) -> None:
    served, off = _off(turns, weights)
    if _farthest(turns, weights) <= FARTHEST:
        return
    shares = np.asarray(weights, float) / sum(weights)
    when, which = np.unravel_index(np.argmax(off), off.shape)
    found = (
        f"Weights {[*weights]}: of the first {plural(int(when) + 1, 'sample')}, corpus {which} has "
        f"{served[when, which]:,}, and its share is {shares[which] * (when + 1):,.1f}."
    )
    expect(
        not at_random,
        f"{found} You draw at random: that is right on average, and off by the root of the number "
        "of samples.",
        f"Leave nothing to chance. {HOW}",
    )
    expect(
        off[-1].max() > FARTHEST,
        f"{found} At the end all is right, but on the way there the model sees a mixture that "
        "nobody asked for.",
        f"Let them take turns from the first sample on. {HOW}",
    )
    as_shares = _turns(take_turns, shares.tolist(), len(turns))
    expect(
        np.isclose(sum(weights), 1) or _farthest(as_shares, weights) > FARTHEST,
        f"{found} The weights add up to {sum(weights):g}: they are shares in another unit.",
        "Divide them by their sum first.",
    )
    refuse(
        f"{found} Draws, with a seed or without, shares that do not add up to 1, and turns that do "
        "not count what was served drift away from the shares.",
        HOW,
    )
