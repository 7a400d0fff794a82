"""Exercise 12.2: windows in which every token is a target once per epoch."""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging.chance import expect_mixed
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, right

Make = Callable[[int, int, int], Any]
Starts = NDArray[np.int64]

# tokens and length; the last corpus has more tokens than 32 bits can number
CORPORA = ((41, 10), (48, 10), (1_000, 10), (1_001, 10), (640, 64), (641, 64), (300, 1))
SHORT = (100, 128), (128, 128), (1, 8), (0, 1), (15, 10), (20, 10)
LARGE = (200_000, 128), (2**33, 2**31)
SEEDS = range(100)


class WindowCase(NamedTuple):
    """Arguments of the learner's function."""

    n_tokens: int
    length: int
    seed: int

    def __str__(self) -> str:
        return f"{self.n_tokens:,} tokens, length {self.length:,} and seed {self.seed}"


def _beyond(case: WindowCase, got: list[int], _: object) -> bool:
    return bool(got) and (got[0] < 0 or got[-1] + case.length >= case.n_tokens)


def _gap(got: list[int]) -> list[int]:
    return np.diff(got).tolist()


SLIPS = (
    Slip(
        _beyond,
        "With {case}, a window begins before the first token, or reads beyond the last one. A "
        "window reads `length + 1` tokens, and small integer types wrap around.",
        "Begin at 0 or later. The last possible start is n_tokens - length - 1.",
    ),
    Slip(
        lambda case, got, _: any(0 < gap < case.length for gap in _gap(got)),
        "With {case}, windows overlap, so some tokens are targets twice. If each window draws its "
        "own start, others are never targets.",
        "Draw one offset for all windows of the epoch.",
    ),
    Slip(
        lambda case, got, _: case.length + 1 in _gap(got),
        "With {case}, a token between two windows is never a target. The last target of a window "
        "is also the first input of the next one.",
        "Start a window every `length` tokens, although each reads one more.",
    ),
    Slip(
        lambda case, got, wanted: len({*got}) < len(wanted),
        "With {case}, there is space for other windows. Some are never served, or too many tokens "
        "are left out at an end.",
        "Draw an offset of 0 to length - 1, and serve all windows behind it once.",
    ),
)


@exercise("12.2", title="Windows without overlap or gap")
def cut_windows(window_starts: Make) -> Verdict:
    """Judge where the windows of an epoch begin, for several corpora, lengths and seeds."""

    def order(n_tokens: int, length: int, seed: int) -> Starts:
        with process_unchanged():
            return _starts(window_starts(n_tokens, length, seed))

    def plain(case: WindowCase) -> list[int]:
        """Return the windows that follow the learner's offset. Without one, it may be the last."""
        first = min(order(*case), default=case.length - 1) % case.length
        return [*range(first, case.n_tokens - case.length, case.length)]

    first = [order(1_000, 10, seed).tolist() for seed in range(3)]
    expect(
        first == [order(1_000, 10, seed).tolist() for seed in range(3)],
        "The same seed gives other windows in a second call. A training could not resume.",
        "Draw everything from np.random.default_rng(seed).",
    )
    cases = [WindowCase(*sizes, seed) for sizes, seed in product((*CORPORA, *SHORT), (0, 1, 17))]
    cases += [WindowCase(n_tokens, length, 5) for n_tokens, length in LARGE]
    compare(lambda case: sorted(order(*case).tolist()), plain, cases, *SLIPS, show=str)
    late = [*range(4), 64, 100, 256, 1_000, 65_536]  # in a cycle of this length, seed 0 again
    epochs = [order(4_008, 8, seed) // 8 for seed in late]
    expect_mixed([epoch.tolist() for epoch in epochs], range(500))
    for n_tokens, length in (4_008, 8), (64_128, 128):
        _judge_chance([order(n_tokens, length, seed) for seed in SEEDS], length)
    return right(
        "Between the first window and the last, every token is a target exactly once. Each epoch "
        "cuts at other places, and has another order."
    )


def _starts(said: Any) -> Starts:
    starts = np.asarray(said)
    expect(
        starts.ndim == 1 and (starts.dtype.kind in "iu" or not starts.size),
        f"You return {said!r:.60}, but the starts of windows are a list of whole numbers.",
        "Return one array: the index of the first token of each window.",
    )
    return starts.astype(np.int64)


def _judge_chance(epochs: list[Starts], length: int) -> None:
    """Judge whether each offset is possible."""
    offsets = {int(epoch.min()) for epoch in epochs}
    missing = length * (1 - 1 / length) ** len(epochs)  # offsets that chance leaves out
    expect(
        len(offsets) > length - missing - 2 * missing**0.5,
        f"{len(epochs)} seeds give {len(offsets)} different offsets, but {length} are possible. "
        "Windows that are cut at the same places show the same pairs of neighbors.",
        "Draw the start of the first window for each seed: rng.integers(length).",
    )
