"""Exercise 11.2: take equally many steps on all ranks, however many batches each of them has."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed

from course_utils.exercises.judging import Failure, run_ranks
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.ranks import failure_of
from course_utils.teaching.exercise import Verdict, exercise, expect_in_a_file, right

LENGTHS = (  # batches of each rank, for two ranks and for three
    ((10, 10), (2, 1)),
    ((10, 10, 10), (4, 2, 3), (3, 5, 9), (0, 3, 1), (300, 299, 301)),
)
SHORT = 10  # batches; longer epochs are run once
SPARE = 2  # batches that may be loaded ahead: the one of this step, and the next one
KINDS = "", ", with a len() that is 1 too large or too small", " and an error"
DAMAGED = 2  # the epoch in which all loaders raise an error after one batch

Lengths = tuple[int, ...]  # batches of each rank
InStep = Callable[[Iterable[Any]], Iterable[Any]]


class Unsent:
    """A batch that cannot be sent to another rank."""

    def __repr__(self) -> str:
        return "Unsent()"

    def __reduce__(self) -> Any:
        raise TypeError("a batch was pickled, to send it to the other ranks")


class LoaderError(RuntimeError):
    """The error of a loader whose file is damaged."""


# any object may be a batch, and none of these means the end
ODD: tuple[Any, ...] = ("END", None, np.ones(2), 0, [], False, (), "", -1, Unsent())


class Batches:
    """A stream of batches that counts how many were requested."""

    def __init__(self, count: int, length: int = 0, damaged: bool = False):
        self.count, self.length, self.damaged, self.drawn = count, length, damaged, 0

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            self.drawn += 1
            yield ODD[number] if number < len(ODD) else number
        if self.damaged:
            raise LoaderError("the file is damaged")


class SizedBatches(Batches):
    """Batches whose `len()` is an estimate, as with most streams."""

    def __len__(self) -> int:
        return self.length


class RankRun(NamedTuple):
    """One epoch of one rank."""

    lengths: Lengths
    epoch: int
    rank: int

    def __str__(self) -> str:
        return f"rank {self.rank} of ranks with {self.lengths} batches{KINDS[self.epoch]}"


STEPS, BATCHES, AHEAD = "steps", "batches of the loop", "batches read ahead of the loop"
SLIPS = (
    Slip(
        lambda _, got, __: isinstance(got, Failure) and not got.left_alone,
        "For {case}, your code stops: {got.text}.",
        "Get a batch with next(mine, END), and compare it with `batch is END`. Do not call len(), "
        "and send no batch to other ranks.",
    ),
    Slip(
        lambda _, got, __: isinstance(got, Failure),
        "For {case}, the rank waits forever. Some rank left the loop, or calls something else, "
        "while others take one more step.",
        "Before each step, all ranks must take the minimum of what they have. With "
        "async_op=True, call wait() before you read it.",
    ),
    Slip(
        lambda _, got, wanted: got[STEPS] != wanted[STEPS],
        "For {case}, the rank takes {got[steps]} steps instead of {wanted[steps]}, as many as the "
        "rank with the fewest batches has. A batch may be 0, None or empty, a len() may be wrong, "
        "the last batch counts, and each loop starts again.",
        "Ask about the batch that you have just requested. Mark the end with END = object(), and "
        "take the minimum over all ranks.",
    ),
)


@exercise("11.2", title="Stay in step", seconds=120)
def stay_in_step(in_step: InStep) -> Verdict:
    """Judge the learner's function on ranks that communicate after every step."""
    expect_in_a_file(in_step)
    for plans in LENGTHS:
        found = run_ranks(_train, in_step, plans, ranks=len(plans[0]))

        def outcome(case: RankRun, found: Sequence[Any] = found) -> Any:
            own = found[case.rank]
            return own if isinstance(own, Failure) else own[case.lengths, case.epoch]

        for lengths, epoch in _epochs(plans):
            cases = [RankRun(lengths, epoch, rank) for rank in range(len(lengths))]
            cases.sort(key=lambda case: getattr(outcome(case), "left_alone", False))
            compare(outcome, _plain, cases, *SLIPS, show=str)
    return right(
        "All ranks take as many steps as the rank with the fewest batches, even if it has none. No "
        "rank waits forever."
    )


def _epochs(plans: Sequence[Lengths]) -> list[tuple[Lengths, int]]:
    return [(one, n) for one in plans for n in range(len(KINDS) if max(one) <= SHORT else 1)]


def _train(in_step: InStep, plans: Sequence[Lengths]) -> dict[tuple[Lengths, int], Any]:
    """Train for some epochs of each plan, and return the outcome of each, up to a failure."""
    found: dict[tuple[Lengths, int], Any] = {}
    for lengths, epoch in _epochs(plans):
        count = lengths[distributed.get_rank()]
        length = max(0, count + (-1 if distributed.get_rank() else 1))
        loaders = Batches(count), SizedBatches(count, length), Batches(1, damaged=True)
        try:
            found[lengths, epoch] = _epoch(in_step, loaders[epoch])
            distributed.barrier()  # for the checkpoint
        except BaseException as error:
            found[lengths, epoch] = failure_of(error)
            break
    return found


def _epoch(in_step: InStep, batches: Batches) -> dict[str, Any]:
    taken: list[Any] = []
    ahead = 0
    try:
        for batch in in_step(batches):
            ahead = max(ahead, batches.drawn - len(taken))
            taken.append(batch)
            distributed.all_reduce(torch.zeros(1))  # the gradients of the step
            if len(taken) > batches.count + SPARE:
                break
    except LoaderError as error:
        taken = [error]
    return _facts(taken, max(ahead, batches.drawn - len(taken)))


def _facts(taken: Sequence[Any], ahead: int = 0) -> dict[str, Any]:
    few = f"at most {SPARE}"
    return {
        STEPS: len(taken),
        BATCHES: [*map(repr, taken)],
        AHEAD: few if ahead <= SPARE else ahead,
    }


def _plain(case: RankRun) -> dict[str, Any]:
    if case.epoch == DAMAGED:
        return _facts([LoaderError("the file is damaged")])
    return _facts([*Batches(min(case.lengths))])
