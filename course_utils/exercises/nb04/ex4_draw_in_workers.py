"""Exercise 04.4: random numbers drawn in workers."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import ConcatDataset

from course_utils.exercises.judging import loader, read_whole
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right

Make = Callable[[int, int], Any]  # from a length and a limit to a dataset

SAMPLES, DRAWS = 32, 2_000
MANY, FEW = 1_000_000, 3  # limits of the numbers; the lowest and the highest of few are often drawn
SEED = 40
_PER_DRAW = (
    "Draw numbers or a seed with PyTorch in __getitem__: torch.randint(2**63 - 1, ()) differs in "
    "each worker, in each epoch and from sample to sample. Keep nothing in self."
)


@exercise("04.4", title="Distinct and reproducible random numbers", seconds=60)
def draw_in_workers(dataset_class: Make) -> Verdict:
    """Expect numbers that differ between samples, workers and epochs, and repeat with the seed."""
    expect_a_class(dataset_class, "a dataset", "creates its own")
    # the learner's seed stays, and only PyTorch's generator may be used
    with torch.random.fork_rng(devices=()), process_unchanged(may_draw=True):
        dataset, seed = dataset_class(2, MANY), torch.initial_seed()
        dataset[1]
        expect(
            torch.initial_seed() == seed,
            "Your dataset seeds PyTorch's own generator. The model draws from it as well, so its "
            "dropout would repeat after every sample.",
            "Remove torch.manual_seed from the dataset.",
        )
        for num_workers in (2, 0):
            _judge_epochs(dataset_class, num_workers)
        halves: ConcatDataset[Any] = ConcatDataset(
            [dataset_class(SAMPLES // 2, MANY) for _ in range(2)]
        )
        _expect_distinct(_epoch(halves, 2), "from ConcatDataset with 2 workers")
        for below in (FEW, MANY):
            _judge_many(dataset_class(1, below), below)
    return right(
        f"{SAMPLES} samples have {SAMPLES} different numbers, each epoch has new ones, and they "
        "repeat after the same torch.manual_seed, with 2 workers and without."
    )


def _judge_epochs(dataset_class: Make, num_workers: int) -> None:
    how = f"with {num_workers} workers" if num_workers else "without workers"
    torch.manual_seed(SEED - 1)
    dataset = dataset_class(SAMPLES, MANY)
    dataset[0]  # as everybody does before training
    torch.manual_seed(SEED)
    epochs = [_epoch(dataset, num_workers) for _ in range(3)]
    for number, epoch in enumerate(epochs):
        _expect_distinct(epoch, how)
        expect(
            epoch not in epochs[:number],
            f"Two epochs have the same numbers {how}. Each sample then always has the same noise, "
            "and the network will learn it.",
            _PER_DRAW,
        )
    for again, which in (dataset_class(SAMPLES, MANY), "a new"), (dataset, "the same"):
        torch.manual_seed(SEED)
        expect(
            _epoch(again, num_workers) == epochs[0],
            f"After the same torch.manual_seed, {which} dataset draws different numbers {how}, so "
            "a run cannot be repeated. Either they depend on something that the dataset kept, or "
            "they come from a source other than PyTorch.",
            _PER_DRAW,
        )


def _judge_many(dataset: Any, below: int) -> None:
    """Refuse numbers that are not equally likely."""
    counts = Counter(_shift(dataset[0], below) for _ in range(DRAWS))
    repeated, usual = DRAWS - len(counts), DRAWS / FEW
    even = [abs(counts[number] - usual) < 5 * usual**0.5 for number in range(FEW)]
    expect(
        repeated <= 10 if below == MANY else all(even),  # chance repeats about 2 of MANY
        f"Not every number from 0 to {below - 1:,} is equally likely. In {DRAWS:,} draws, "
        f"{repeated:,} are repeated, and the most frequent ones are {counts.most_common(3)}.",
        "Draw with torch.randint(self.below, ()), or with rng.integers(self.below).",
    )


def _expect_distinct(numbers: Sequence[int], how: str) -> None:
    expect(
        len(set(numbers)) >= SAMPLES - 1,  # two of them may meet among a million
        f"{SAMPLES} samples have {len(set(numbers))} different numbers {how}. Either each worker "
        "has a copy of one generator, or seeds repeat, or too few numbers are possible.",
        _PER_DRAW,
    )


def _epoch(dataset: Any, num_workers: int) -> list[int]:
    batches = loader(dataset, batch_size=4, num_workers=num_workers)
    return [_shift(value, MANY) for batch in batches for value in batch]


def _shift(value: Any, below: int) -> int:
    refusal = f"With below = {below:,}, a sample is {value!r:.60}, not from 0 to {below - 1:,}."
    next_step = "Return int(rng.integers(self.below)), or int(torch.randint(self.below, ()))."
    shift = read_whole(value, refusal, next_step)
    expect(0 <= shift < below, refusal, next_step)
    return shift
