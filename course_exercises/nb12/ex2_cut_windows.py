"""Exercise 12.2: windows in which every token is a target once an epoch."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_exercises.judging import (
    in_a_worker_of_another_rank,
    in_another_process,
    random_numbers_of,
    random_state,
)
from course_utils.teaching.exercise import Verdict, exercise, expect, right

Make = Callable[[int, int, int], Any]
Starts = NDArray[np.int64]

CASES = ((1_000, 10), (1_001, 10), (1_007, 10), (640, 64), (641, 64), (200_000, 128), (300, 1))
MANY, HUGE = 100_000, 2**32  # tokens, more than two or four bytes can number
TOO_SHORT = ((100, 128), (128, 128), (1, 8))
SEEDS = range(100)  # epochs in which chance is judged
CHANCE = (4_001, 8), (40_000, 128)  # tokens and length; of the first, windows may leave none over
SAME_ORDER = 0.5  # correlation; orders that are drawn anew have 0 ± 0.05
RANGE = "np.arange(first, n_tokens - length, length)"


@exercise("12.2", title="Windows without overlap or gap")
def cut_windows(window_starts: Make) -> Verdict:
    """Judge where the windows of an epoch begin, for several corpora, lengths and seeds."""
    before = random_state()
    _judge_type(window_starts)
    for n_tokens, length in CASES:
        for seed in (0, 1, 17):
            starts = _starts(window_starts, n_tokens, length, seed)
            _judge_windows(starts, n_tokens, length)
            expect(
                np.array_equal(_starts(window_starts, n_tokens, length, seed), starts),
                "Asked twice for the same seed, your function returns other windows. A training "
                "that begins again could not go on where it stopped.",
                "Draw everything from np.random.default_rng(seed).",
            )
            elsewhere = _starts_elsewhere(window_starts, n_tokens, length, seed)
            expect(
                np.array_equal(elsewhere, starts),
                "In another process your function returns other windows for the same seed, so the "
                "ranks of a training do not agree. There the number of the process is another one, "
                "of the rank and of the worker too, the seed of torch, and hash() of a text.",
                "Draw everything from np.random.default_rng(seed), and put nothing else into it.",
            )
    for n_tokens, length in TOO_SHORT:
        count = len(_starts(window_starts, n_tokens, length, 0))
        expect(
            not count,
            f"{n_tokens} tokens are too few for {length} inputs and the target of the last, and "
            f"you return {count} starts.",
            f"Return an empty array there, as {RANGE} does.",
        )
    for n_tokens, length in CHANCE:
        epochs = [_starts(window_starts, n_tokens, length, seed) for seed in SEEDS]
        _judge_chance(epochs, n_tokens, length)
    expect(
        random_state() == before,
        "Your function draws from the random numbers of the whole process, or sets them: for "
        "the dropout and the augmentation too.",
        "Make a generator of your own: np.random.default_rng(seed).",
    )
    return right(
        "Between the first window and the last, every token is a target exactly once. Each epoch "
        "cuts at other places, and has another order."
    )


def _judge_type(window_starts: Make) -> None:
    """Judge whether the numbers are large enough, for a corpus here and for those of the notes."""
    few, many = (np.asarray(window_starts(n_tokens, 100, 0)).dtype for n_tokens in (1_000, MANY))
    if (
        few == many and many.kind in "iu" and many.itemsize < 8
    ):  # else it grows, or is refused below
        with suppress(OverflowError):
            many = np.asarray(window_starts(HUGE, HUGE // 4, 0)).dtype
        expect(
            many != few,
            f"Your starts are {many}, which ends at {np.iinfo(many).max:,}. A corpus has more "
            "tokens: the one of the lecture notes has 100 billion.",
            "Leave them in 64 bits, as np.arange makes them.",
        )


def _starts(window_starts: Make, n_tokens: int, length: int, seed: int) -> Starts:
    said = window_starts(n_tokens, length, seed)
    starts = np.asarray(said)
    expect(
        starts.ndim == 1 and (starts.dtype.kind in "iu" or not starts.size),
        f"For {n_tokens:,} tokens and a length of {length} you return {said!r:.60}, which is no "
        "row of whole numbers.",
        "Return one array: the token with which each window begins.",
    )
    return starts.astype(np.int64)


def _starts_elsewhere(window_starts: Make, n_tokens: int, length: int, seed: int) -> Starts:
    getattr(window_starts, "cache_clear", bool)()  # no process knows what another one remembers
    with (
        in_another_process(window_starts),
        in_a_worker_of_another_rank(),
        random_numbers_of(1),
    ):
        return _starts(window_starts, n_tokens, length, seed)


def _judge_windows(starts: Starts, n_tokens: int, length: int) -> None:
    where = f"{n_tokens:,} tokens in windows of {length}"
    expect(len(starts), f"{where}: you return no start at all.", f"Take what fits: {RANGE}.")
    last = int(starts.max()) + length
    expect(
        starts.min() >= 0 and last < n_tokens,
        f"{where}: the first begins at {starts.min()}, and the last target of the last one is "
        f"token {last:,}. The tokens have the numbers 0 to {n_tokens - 1:,}.",
        "A window reads length + 1 tokens, so the last start is n_tokens - length - 1.",
    )
    served = np.bincount((starts[:, None] + np.arange(1, length + 1)).ravel(), minlength=n_tokens)
    first = int(starts.min()) + 1
    twice, never = int((served > 1).sum()), int((served[first:last] == 0).sum())
    expect(
        not never or length == 1 or np.any(starts % length != starts[0] % length),
        f"{where}: the windows lie side by side, but {never // length:,} of them are left out, and "
        f"{len(starts) - len(np.unique(starts)):,} come again.",
        "Serve each window once: rng.permutation(starts) draws their order, and none is cut off.",
    )
    expect(
        not twice,
        f"{where}: {twice:,} tokens are targets more than once, and {never:,} between the first "
        f"window and the last are never. {_why_twice(never, int(served.max()))}",
        f"Draw one offset for all windows of the epoch, and let them follow each other: {RANGE}.",
    )
    expect(
        not never,
        f"{where}: {never:,} tokens between two windows are never a target. The last target of a "
        "window is the first input of the next one: what comes after an input, the model has to "
        "guess.",
        "The windows lie `length` apart, though each reads a token more.",
    )
    left = n_tokens - 1 - last
    expect(
        first - 1 < length and left < length,
        f"{where}: before the first window {first - 1:,} tokens are left out, behind the last one "
        f"{left:,}. There was room for another window.",
        "Begin with an offset from 0 to length - 1, and take all windows that fit behind it.",
    )


def _why_twice(never: int, most: int) -> str:
    if not never:
        return "The windows lie too close to each other."
    if most == 2:  # those that are drawn freely pile up
        return (
            "Each window moves by an offset of its own, so it overlaps one neighbour and leaves a "
            "gap to the other."
        )
    return "The starts do not know of each other, as in nanoGPT."


def _judge_chance(epochs: list[Starts], n_tokens: int, length: int) -> None:
    for starts in epochs:
        _judge_windows(starts, n_tokens, length)
    missing = length * (1 - 1 / length) ** len(epochs)  # offsets, on average
    offsets = {int(starts.min()) for starts in epochs}
    expect(
        len(offsets) > 1,
        "All epochs cut at the same places: what a window ends with never stands before what the "
        "next one begins with, in no epoch.",
        "Draw the start of the first window anew for each seed: rng.integers(length).",
    )
    expect(
        len(offsets) > length - missing - 2 * missing**0.5,
        f"{len(epochs)} epochs have only {len(offsets)} different offsets, and {length} there are.",
        "Draw the start of the first window from 0 to length - 1: rng.integers(length).",
    )
    expect(
        all(np.any(np.diff(starts) < 0) for starts in epochs),
        "The windows are served in the order of the file: a batch holds neighbours, which are "
        "alike.",
        "Return them in a random order: rng.permutation(starts).",
    )
    near = [float(np.mean(np.abs(np.diff(starts)) == length)) for starts in epochs]
    expect(
        np.median(near) < SAME_ORDER,
        "Most windows are followed by their neighbour: the order is only turned, or cut in a few "
        "pieces.",
        "Return rng.permutation(starts).",
    )
    size = min(map(len, epochs))
    likeness = np.abs(np.corrcoef([starts[:size] for starts in epochs]) - np.eye(len(epochs)))
    expect(
        likeness.max() < SAME_ORDER,
        "Two of a hundred epochs serve their windows in nearly the same order.",
        "Shuffle with the same generator that draws the offset: both are new for each seed.",
    )
