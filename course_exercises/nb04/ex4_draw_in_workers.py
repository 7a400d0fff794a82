"""Exercise 04.4: random numbers drawn in workers."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset

from course_exercises.judging import loader, read_whole
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from keepfed.formatting import percent

SAMPLES, DRAWS, DRAWS_S = 32, 2_000, 3.0  # as many draws as this time allows
BELOW = 1_000_000
SEED = 40
_PER_DRAW = (
    "Let PyTorch draw in __getitem__, numbers or a seed: torch.randint(2**63 - 1, ()) differs in "
    "each worker, in each epoch and from sample to sample."
)


@exercise("04.4", title="Distinct and reproducible random numbers", seconds=150)
def draw_in_workers(dataset_class: Callable[[int], Any]) -> Verdict:
    """Expect numbers that differ between samples, workers and epochs, and repeat with the seed."""
    expect_a_class(dataset_class, "a dataset", "builds its own")
    with torch.random.fork_rng(devices=()):  # the learner's seed stays
        one = dataset_class(1)
        one[0]
        expect(
            not any(isinstance(kept, torch.Generator) for kept in vars(one).values()),
            "The dataset keeps a torch.Generator. Many versions of PyTorch cannot send it to a "
            "worker; and where they can, each worker gets a copy, and all draw the same numbers.",
            "Leave it out: torch.randint(1_000_000, ()) draws from a generator that PyTorch seeds "
            "in each worker.",
        )
        for num_workers in (2, 0):
            _judge_epochs(dataset_class, num_workers)
        _judge_many(dataset_class)
        _judge_joined(dataset_class)
    return right(
        f"{SAMPLES} samples, {SAMPLES} different numbers, new ones in the next epoch, and the same "
        "again after the same torch.manual_seed: with 2 workers and with none."
    )


def _judge_epochs(dataset_class: Callable[[int], Any], num_workers: int) -> None:
    how = f"with {num_workers} workers" if num_workers else "without workers"
    torch.manual_seed(SEED - 1)
    dataset = dataset_class(SAMPLES)
    dataset[0]  # as everybody does before training
    torch.manual_seed(SEED)
    first, second = (_epoch(dataset, num_workers) for _ in range(2))
    torch.manual_seed(SEED)
    anew = _epoch(dataset_class(SAMPLES), num_workers)
    expect(
        torch.initial_seed() == SEED,
        "Your dataset seeds PyTorch's own generator. The model draws from it as well: its dropout "
        "would repeat after every sample.",
        "Call no torch.manual_seed in a dataset.",
    )
    torch.manual_seed(SEED)
    again = _epoch(dataset, num_workers)
    _expect_distinct(first, anew, how)
    expect(
        max(first) - min(first) > BELOW * 2 / 3,
        f"All of {SAMPLES} numbers lie between {min(first):,.0f} and {max(first):,.0f}.",
        f"Draw integers below {BELOW:,}, each as likely as the others.",
    )
    expect(
        first != second,
        f"Every epoch brings the same numbers {how}: there is one noise for each sample for ever, "
        "and the network will learn it.",
        f"{_PER_DRAW} torch.initial_seed() stays the same in the notebook, whatever is drawn.",
    )
    expect(
        first == anew,
        f"After the same torch.manual_seed other numbers come {how}: the run cannot be repeated.",
        "Draw from PyTorch's generator, or let it draw the seed of yours: not from the clock, the "
        "pid, nothing, another library, or a count that the dataset keeps.",
    )
    expect(
        first == again,
        f"After the same torch.manual_seed the same dataset brings other numbers {how}: its "
        "generator went on where it was. torch.initial_seed() tells of a new seed only if it is "
        "another number.",
        _PER_DRAW,
    )


def _judge_joined(dataset_class: Callable[[int], Any]) -> None:
    half = SAMPLES // 2
    joined = _epoch(ConcatDataset([dataset_class(half), dataset_class(half)]), num_workers=2)
    distinct = len(set(joined))
    expect(
        distinct >= SAMPLES - 1,  # two of them may meet among a million
        f"ConcatDataset of two of your datasets brings {distinct} different numbers in {SAMPLES} "
        "samples: in each worker both made a generator from the same seed.",
        _PER_DRAW,
    )


def _judge_many(dataset_class: Callable[[int], Any]) -> None:
    dataset = dataset_class(1)
    end, drawn = time.monotonic() + DRAWS_S, [_shift(dataset[0])]
    while len(drawn) < DRAWS and time.monotonic() < end:
        drawn.append(_shift(dataset[0]))
    distinct = len(set(drawn))
    expect(
        len(drawn) - distinct <= 10,  # of a million, hardly two are the same: 2 are to be expected
        f"{len(drawn):,} draws bring {distinct:,} different numbers: seeds or numbers are drawn "
        "from too few.",
        _PER_DRAW,
    )
    quarters = np.histogram(drawn, 4, (0, BELOW))[0] / len(drawn)
    expect(
        quarters.max() - quarters.min() < 4 / len(drawn) ** 0.5,  # chance makes about one
        f"Of {len(drawn):,} numbers {percent(quarters.max())} lie in one quarter of all that are "
        f"below {BELOW:,}, and {percent(quarters.min())} in another.",
        "Draw each as likely as the others: torch.randint, or integers of a generator.",
    )


def _expect_distinct(numbers: list[int], of_unused: list[int], how: str) -> None:
    distinct = len(set(numbers))
    said = f"{distinct} different numbers for {SAMPLES} samples {how}"
    expect(
        distinct > 2,
        f"{said}: the generator is made anew, with the same seed, for every sample.",
        _PER_DRAW,
    )
    expect(
        distinct > SAMPLES / 2 or len(set(of_unused)) <= SAMPLES / 2,
        f"{said}: the notebook looked at one sample first, which made the generator, and both "
        "workers got a copy of it.",
        _PER_DRAW,
    )
    expect(
        distinct > SAMPLES / 2,
        f"{said}: both workers draw the same ones. Each has a copy of one generator, or seeded its "
        "own with the same number.",
        _PER_DRAW,
    )


def _epoch(dataset: Any, num_workers: int) -> list[int]:
    batches = loader(dataset, batch_size=4, num_workers=num_workers)
    return [_shift(value) for batch in batches for value in batch]


def _shift(value: Any) -> int:
    refusal = f"A sample is {value!r:.60}, no whole number from 0 to {BELOW - 1:,}."
    next_step = "Return int(rng.integers(1_000_000)), or int(torch.randint(1_000_000, ()))."
    shift = read_whole(value, refusal, next_step)
    expect(0 <= shift < BELOW, refusal, next_step)
    return shift
