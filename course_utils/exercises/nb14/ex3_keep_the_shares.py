"""Exercise 14.3: the same share of signal in every batch, and every event once per epoch."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from course_utils.exercises.judging.compare import Slip
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.exercises.nb14.epochs import (
    Indices,
    call,
    expect_random,
    judge_epochs,
    ledger,
    read_batches,
)
from course_utils.teaching.exercise import Verdict, exercise, expect, right

Share = Callable[[Indices, Indices, int, np.random.Generator], Iterable[Any]]
OFF = "a batch off its share"


class ShareCase(NamedTuple):
    """Numbers of signal and background events, and the size of a batch."""

    signal: int
    background: int
    batch_size: int

    def __str__(self) -> str:
        events = f"{self.signal} signal and {self.background} background events"
        return f"{events} in batches of {self.batch_size}"


LARGE = ShareCase(2_000, 6_000, 64)
CASES = (
    ShareCase(2, 6, 4),
    ShareCase(3, 7, 4),
    ShareCase(7, 93, 10),  # fewer signal events than batches
    ShareCase(50, 50, 15),
    ShareCase(0, 20, 8),
    ShareCase(9, 0, 20),  # one batch, which is not full
    ShareCase(1_000, 37, 50),  # more signal than background
    LARGE,
)
OFF_SHARE = Slip(
    lambda _, got, __: got[OFF],
    "With {case}, {got[a batch off its share]}.",
    "Round the running total of signal events after each batch, not the number per batch.",
)


@exercise("14.3", title="Keep the shares", seconds=30)
def keep_the_shares(fixed_shares: Share) -> Verdict:
    """Count events and classes in all batches of an epoch."""
    judge_epochs(partial(_epoch, fixed_shares), CASES, [OFF], OFF_SHARE)
    for kind in (0, 1):  # batches are pairs of random orders, one for each class

        def own(seed: int, kind: int = kind) -> list[int]:
            order = np.concatenate(_run(fixed_shares, LARGE, seed))
            return list(order[order % 2 == kind].tolist())

        expect_random(own)
    met = [_pairs(_run(fixed_shares, ShareCase(500, 500, 10), seed)) for seed in (1, 2)]
    expect(
        len(met[0] & met[1]) < 0.1 * len(met[0]),  # by chance, one pair in a hundred
        "Signal and background events that share a batch in one epoch share one in the next epoch "
        "too. You permute both in the same way.",
        "Call rng.permutation once for each class, with the one generator.",
    )
    return right(
        f"In {len(CASES)} data sets, every batch has its share of signal to within one event, and "
        "every event is served once."
    )


def _pairs(batches: list[Indices]) -> set[tuple[int, int]]:
    """Return which signal event meets which background event."""
    classes = [(batch[batch % 2 == 0], batch[batch % 2 == 1]) for batch in batches]
    return {pair for own, others in classes for pair in product(own.tolist(), others.tolist())}


def _classes(case: ShareCase) -> tuple[Indices, Indices]:
    """Return even indices for the signal, and odd ones for the background."""
    return 2 * np.arange(case.signal), 2 * np.arange(case.background) + 1


def _run(fixed_shares: Share, case: ShareCase, seed: int) -> list[Indices]:
    signal, background = _classes(case)
    with process_unchanged(signal, background):
        rng = np.random.default_rng(seed)
        said = [*call(fixed_shares, signal, background, case.batch_size, rng)]
    return read_batches(said, np.concatenate([signal, background]))


def _epoch(fixed_shares: Share, case: ShareCase) -> dict[str, Any]:
    batches, known = _run(fixed_shares, case, 0), np.concatenate(_classes(case))
    off = ""
    for number, batch in enumerate(batches):
        signal, share = int((batch % 2 == 0).sum()), case.signal / len(known) * len(batch)
        if abs(signal - share) > 1.001 and not off:
            off = f"batch {number} has {signal} signal events, but its share is {share:.1f}"
    return {**ledger(batches, known, case.batch_size), OFF: off or 0}
