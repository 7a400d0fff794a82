"""Exercise 04.4: random numbers drawn in workers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset

from course_utils.exercises.judging import loader, read_whole
from course_utils.exercises.judging.probes import expect_as_fast, process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from keepfed.formatting import percent

SAMPLES, DRAWS = 32, 2_000
BELOW = 1_000_000
SEED = 40
_PER_DRAW = (
    "Draw numbers or a seed with PyTorch in __getitem__: torch.randint(2**63 - 1, ()) differs in "
    "each worker, in each epoch and from sample to sample. Keep nothing in self."
)


@exercise("04.4", title="Distinct and reproducible random numbers", seconds=60)
def draw_in_workers(dataset_class: Callable[[int], Any]) -> Verdict:
    """Expect numbers that differ between samples, workers and epochs, and repeat with the seed."""
    expect_a_class(dataset_class, "a dataset", "creates its own")
    # the learner's seed stays, and only PyTorch's generator may be used
    with torch.random.fork_rng(devices=()), process_unchanged(may_draw=True):
        one, seed = dataset_class(2), torch.initial_seed()
        one[1]
        expect(
            torch.initial_seed() == seed,
            "Your dataset seeds PyTorch's own generator. The model draws from it as well, so its "
            "dropout would repeat after every sample.",
            "Remove torch.manual_seed from the dataset.",
        )
        expect(
            not any(isinstance(kept, torch.Generator) for kept in vars(one).values()),
            "The dataset keeps a torch.Generator. Many versions of PyTorch cannot send it to a "
            "worker, and in the others each worker gets a copy that draws the same numbers.",
            "Remove it. torch.randint(1_000_000, ()) draws from a generator that PyTorch seeds in "
            "each worker.",
        )
        expect_as_fast(
            lambda: [one[0] for _ in range(20)],
            lambda: [np.random.default_rng(int(torch.randint(2**63 - 1, ()))) for _ in range(20)],
            times=100,
        )
        for num_workers in (2, 0):
            _judge_epochs(dataset_class, num_workers)
        half = dataset_class(SAMPLES // 2), dataset_class(SAMPLES // 2)
        _expect_distinct(_epoch(ConcatDataset(half), 2), "from ConcatDataset with 2 workers")
        _judge_many(dataset_class(1))
    return right(
        f"{SAMPLES} samples have {SAMPLES} different numbers, each epoch has new ones, and they "
        "repeat after the same torch.manual_seed, with 2 workers and without."
    )


def _judge_epochs(dataset_class: Callable[[int], Any], num_workers: int) -> None:
    how = f"with {num_workers} workers" if num_workers else "without workers"
    torch.manual_seed(SEED - 1)
    dataset = dataset_class(SAMPLES)
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
    for again, which in (dataset_class(SAMPLES), "a new"), (dataset, "the same"):
        torch.manual_seed(SEED)
        expect(
            _epoch(again, num_workers) == epochs[0],
            f"After the same torch.manual_seed, {which} dataset draws different numbers {how}, so "
            "a run cannot be repeated. Either they depend on something that the dataset kept, or "
            "they come from a source other than PyTorch.",
            _PER_DRAW,
        )


def _judge_many(dataset: Any) -> None:
    """Refuse numbers that are not equally likely."""
    torch.seed()  # so that an answer that seeds other generators leaves a new state each time
    drawn = [_shift(dataset[0]) for _ in range(DRAWS)]
    repeated = DRAWS - len(set(drawn))
    quarters = np.histogram(drawn, 4, (0, BELOW))[0]
    digits = np.bincount(np.array(drawn) % 10, minlength=10)
    expect(
        repeated <= 10 and _even(quarters) and _even(digits),  # chance repeats about 2
        f"Not every number below {BELOW:,} is equally likely. In {DRAWS:,} draws, {repeated} are "
        f"repeated, {percent(quarters.max() / DRAWS)} are in one quarter, and "
        f"{percent(digits.max() / DRAWS)} end with the same digit.",
        f"Draw with torch.randint({BELOW:_}, ()), or with rng.integers({BELOW:_}).",
    )


def _even(counts: Any) -> bool:
    """Return whether all counts are within five standard deviations of their mean."""
    mean = counts.mean()
    return bool((abs(counts - mean) < 5 * mean**0.5).all())


def _expect_distinct(numbers: Sequence[int], how: str) -> None:
    expect(
        len(set(numbers)) >= SAMPLES - 1,  # two of them may meet among a million
        f"{SAMPLES} samples have {len(set(numbers))} different numbers {how}. Either each worker "
        "has a copy of one generator, or seeds repeat, or too few numbers are possible.",
        _PER_DRAW,
    )


def _epoch(dataset: Any, num_workers: int) -> list[int]:
    batches = loader(dataset, batch_size=4, num_workers=num_workers)
    return [_shift(value) for batch in batches for value in batch]


def _shift(value: Any) -> int:
    refusal = f"A sample is {value!r:.60}, not a whole number from 0 to {BELOW - 1:,}."
    next_step = "Return int(rng.integers(1_000_000)), or int(torch.randint(1_000_000, ()))."
    shift = read_whole(value, refusal, next_step)
    expect(0 <= shift < BELOW, refusal, next_step)
    return shift
