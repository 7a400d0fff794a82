"""11.2: take equally many steps on all ranks, whatever each of them has to load."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed

from course_exercises.judging import Failure, run_ranks
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_in_a_file, right
from keepfed.formatting import plural

LENGTHS = ((10, 10), (4, 2, 3), (3, 5, 9), (0, 3, 1))  # batches of each rank
AHEAD = 2  # batches that may be there before a step: its own, and the next one
# whatever a batch may be, none of these means the end
BATCHES: tuple[Any, ...] = ("END", None, np.ones(2), 0, [], False, (), "", -1, "tenth")

InStep = Callable[[Iterable[Any]], Iterable[Any]]


class Epoch(NamedTuple):
    """What one rank did in an epoch."""

    taken: str  # as text: the batches it took a step with
    steps: int
    ahead: int  # batches that were there before a step, at most


class Batches:
    """A stream of batches without a length that counts how many were asked for."""

    def __init__(self, count: int):
        self.count, self.drawn = count, 0

    def __iter__(self) -> Iterator[Any]:
        for batch in BATCHES[: self.count]:
            self.drawn += 1
            yield batch


class SizedBatches(Batches):
    """The same of which somebody knows how many there are, as of those of most loaders."""

    def __len__(self) -> int:
        return self.count


class LoaderError(RuntimeError):  # as if a worker was killed
    """What a loader raises whose file is broken."""


class BrokenBatches(Batches):
    """The same, and behind them an error."""

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        raise LoaderError("the file is broken")


@exercise("11.2", title="Stay in step", seconds=120)
def stay_in_step(in_step: InStep) -> Verdict:
    """Judge the learner's function in three processes that meet after every step."""
    expect(
        callable(in_step),
        "The check needs your function; this is something else.",
        "Hand it over without parentheses: in_step.",
    )
    expect_in_a_file(in_step)
    for lengths in LENGTHS:
        found = run_ranks(_train, in_step, lengths, ranks=len(lengths))
        _expect_no_failure(found, lengths)
        first, second, told = zip(*found, strict=True)
        _judge(first, lengths)
        expect(
            [epoch.steps for epoch in second] == [epoch.steps for epoch in first],
            f"{_have(lengths)}, all take {plural(first[0].steps, 'step')} in a first epoch, and "
            f"{second[0].steps} in a second one, whose batches have a len(): something remembers "
            "how the first ended, or goes by the len().",
            "Keep what you note in variables of the function, and ask for the next batch.",
        )
        _judge(second, lengths)
        expect(
            all(told),
            "The loaders of all ranks raise an error after their first batch, and the epoch ends "
            "as if it were over: nobody hears of it.",
            "Catch StopIteration alone, or ask with next(mine, END); other errors go through.",
        )
    return right(
        "As many steps on every rank as the shortest has batches, and no rank was left alone; also "
        "where one has none at all."
    )


def _train(in_step: InStep, lengths: Sequence[int]) -> tuple[Epoch, Epoch, bool]:
    """Train for two epochs of a rank; return them, and whether the error of a third came out."""
    count = lengths[distributed.get_rank()]
    first, second = (_epoch(in_step, batches) for batches in (Batches(count), SizedBatches(count)))
    try:
        _epoch(in_step, BrokenBatches(1))
    except LoaderError:
        return first, second, True
    return first, second, False


def _epoch(in_step: InStep, batches: Batches) -> Epoch:
    taken: list[Any] = []
    ahead = 0
    for batch in in_step(batches):
        ahead = max(ahead, batches.drawn - len(taken))
        taken.append(batch)
        distributed.all_reduce(torch.zeros(1))  # here the gradients meet
        if len(taken) > len(BATCHES):
            break
    return Epoch(repr(taken), len(taken), ahead)


def _have(lengths: Sequence[int]) -> str:
    return f"Where the ranks have {', '.join(map(str, lengths[:-1]))} and {lengths[-1]} batches"


def _expect_no_failure(
    found: Sequence[tuple[Epoch, Epoch, bool] | Failure], lengths: Sequence[int]
) -> None:
    have = _have(lengths)
    for rank, one in enumerate(found):
        if isinstance(one, Failure) and not one.left_alone:
            _judge_error(one, f"{have}, rank {rank}")
    expect(
        not any(isinstance(one, Failure) for one in found),
        f"{have}, they end with one waiting for the others in vain: some rank left the loop, or "
        "asks for something else, while others take one more step.",
        "Before each step, let all ranks tell whether they have a batch, and all of them go by the "
        "same answer: the minimum.",
    )


def _judge(epochs: Sequence[Epoch], lengths: Sequence[int]) -> None:
    have = _have(lengths)
    for rank, epoch in enumerate(epochs):
        expect(
            epoch.steps <= lengths[rank],
            f"{have}, rank {rank} takes {plural(epoch.steps, 'step')}: something is served that is "
            "no batch, or a batch twice.",
            "End with the first rank that has no batch left, and yield none of your marks.",
        )
    for rank, epoch in enumerate(epochs):
        _judge_epoch(epoch, f"{have}, rank {rank}", min(lengths))


def _judge_error(one: Failure, where: str) -> None:
    expect(
        one.kind != "TypeError" or "len()" not in one.text,
        f"{where} stops: {one.text}. A stream of shards does not know how many batches it has.",
        "Ask for the next batch, and tell the others whether there was one.",
    )
    expect(
        one.kind != "StopIteration" and "StopIteration" not in one.text,
        f"{where} stops: {one.text}. next() raises where there is no batch left.",
        "Give it something to return instead: next(mine, END), with END = object().",
    )
    expect(
        not any(words in one.text for words in ("Boolean value of Tensor", "truth value of an")),
        f"{where} stops: {one.text}. A batch is asked whether it is true.",
        "Compare with an object of your own: batch is END.",
    )
    expect(False, f"{where} stops: {one.text}.", "Mend that line, and run its cell again.")


def _judge_epoch(one: Epoch, where: str, fewest: int) -> None:
    expect(
        one.taken == repr([*BATCHES[: one.steps]]),
        f"{where} gets {one.taken}; its batches were {[*BATCHES[: max(one.steps, 1)]]}.",
        "Yield the batches themselves, in their order, and lose none.",
    )
    expect(
        one.steps != fewest - 1,
        f"{where} takes {plural(one.steps, 'step')} of {fewest} that all could take: the last "
        "batch that all of them have is lost.",
        "Ask all whether they have this batch, not whether another one comes after it.",
    )
    expect(
        one.steps >= fewest,
        f"{where} takes {plural(one.steps, 'step')} of {fewest} that all could take. A batch may "
        "be 0, None or empty, none of which means the end; and any number of ranks may take part.",
        "Mark the end with an object of your own, END = object(), and compare with `is`; take the "
        "minimum over all ranks.",
    )
    expect(
        one.steps == fewest,
        f"{where} takes {plural(one.steps, 'step')}, and others take {fewest}.",
        "End on all ranks with the first that has no batch left.",
    )
    expect(
        one.ahead <= AHEAD,
        f"{where} has loaded {one.ahead} batches before it takes a step with the first of them: "
        "an epoch has to fit in memory, and nothing is loaded while the GPU computes.",
        "Ask for one batch at a time, and yield it before you ask for more.",
    )
