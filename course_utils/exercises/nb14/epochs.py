"""Facts about the batches of one epoch, for the checks of notebook 14."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging.chance import expect_mixed
from course_utils.exercises.judging.compare import Slip, compare, short
from course_utils.teaching.exercise import expect

Epoch = Callable[[Any], dict[str, Any]]  # from a case to its facts
Indices = NDArray[np.int64]
TWICE, NEVER, CUT = "events served twice", "never served", "batches of a wrong size"
SLIPS = (
    Slip(
        lambda _, got, __: got[NEVER] and not got[TWICE],
        "With {case}, the number of events that are never served is {got[never served]}.",
        "At the end, serve everything that is left, even if the last batch is smaller.",
    ),
    Slip(
        lambda _, got, __: got[CUT] and not got[TWICE],
        "With {case}, the number of batches of a wrong size is {got[batches of a wrong size]}. "
        "Only the last one may be smaller, and none may be empty.",
        "Keep the rest of the events for the next batch.",
    ),
)


def judge_epochs(epoch: Epoch, cases: Iterable[Any], facts: Sequence[str], *slips: Slip) -> None:
    """Reject an epoch if a count of the ledger or another of these `facts` is not 0."""
    wanted = dict.fromkeys((TWICE, NEVER, CUT, *facts), 0)
    compare(epoch, lambda _: wanted, cases, *SLIPS, *slips, show=str)


def read_batches(batches: Iterable[Any], known: Indices) -> list[Indices]:
    """Return the batches as arrays of known indices, and reject anything else."""
    found = [np.asarray(batch) for batch in batches]
    for batch in found:
        expect(
            batch.ndim == 1 and batch.dtype.kind in "iu" and np.isin(batch, known).all(),
            f"A batch is {short(batch)}, but each batch must be an array of event indices.",
            "Serve elements of the arrays that you received, not their positions or other numbers.",
        )
    return found


def call(answer: Any, *given: Any) -> Iterable[Any]:
    """Return the batches of an answer, and reject what is no function or returns no batches."""
    expect(
        callable(answer),
        "This is what your function returns, not the function. The check calls it with other data.",
        "Pass the function itself, without parentheses.",
    )
    said = answer(*given)
    expect(
        isinstance(said, Iterable),
        f"Your function returns {short(said)}, not batches.",
        "Write `yield` for each batch, or return a list of all batches.",
    )
    return said  # type: ignore[no-any-return]


def ledger(batches: Sequence[Indices], known: Indices, batch_size: int) -> dict[str, Any]:
    """Return how many events were served twice or never. Only the last batch may be smaller."""
    served = np.concatenate([known[:0], *batches])
    counts = np.bincount(served, minlength=known.max() + 1)[known]
    cut = sum(len(batch) != batch_size for batch in batches[:-1])
    cut += sum(not 0 < len(batch) <= batch_size for batch in batches[-1:])
    return {TWICE: int((counts > 1).sum()), NEVER: int((counts == 0).sum()), CUT: cut}


def expect_random(
    order: Callable[[int], Sequence[int]], cluster: Callable[[int], int] = int
) -> None:
    """Reject orders that do not depend only on the given generator. `order` receives its seed.

    Events of the same `cluster` may stay close to each other.
    """
    first, second = ([*dict.fromkeys(map(cluster, order(seed)))] for seed in (1, 2))
    expect(
        order(1) == order(1),
        "The same generator gives a different order. Your answer draws from a second generator.",
        "Draw only from rng.",
    )
    expect_mixed([first, second], sorted(first))
