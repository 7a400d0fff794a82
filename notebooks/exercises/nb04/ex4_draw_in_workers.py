"""Exercise 04.4: random numbers drawn in workers."""

from collections.abc import Callable
from typing import Any

import torch

from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_a_class,
    expect_in_a_file,
    right,
)
from notebooks.exercises.judging import loader

SAMPLES = 32
SEED = 40


@exercise("04.4", title="Distinct and reproducible random numbers", seconds=150)
def draw_in_workers(dataset_class: Callable[[int], Any]) -> Verdict:
    """Expect numbers that differ between samples, workers and epochs, and repeat with the seed."""
    expect_a_class(dataset_class, "a dataset", "builds its own")
    expect_in_a_file(dataset_class)
    with torch.random.fork_rng(devices=()):  # the learner's seed stays
        for num_workers in (2, 0):
            _judge_epochs(dataset_class, num_workers)
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
    again = _epoch(dataset_class(SAMPLES), num_workers)
    _expect_distinct(first, again, how)
    expect(
        first != second,
        f"Every epoch brings the same numbers {how}: there is one noise for each sample for ever, "
        "and the network will learn it.",
        "In a worker torch.initial_seed() is new in each epoch. Without workers it is not: make "
        "one generator from it and keep drawing.",
    )
    expect(
        first == again,
        f"After the same torch.manual_seed other numbers come {how}: the run cannot be repeated.",
        "Seed the generator with torch.initial_seed(), not with the clock, the pid or nothing.",
    )


def _expect_distinct(numbers: list[float], of_unused: list[float], how: str) -> None:
    distinct = len(set(numbers))
    said = f"{distinct} different numbers for {SAMPLES} samples {how}"
    expect(
        distinct > 2,
        f"{said}: the generator is made anew, with the same seed, for every sample.",
        "Make the generator once in a process and keep it.",
    )
    expect(
        distinct > SAMPLES / 2 or len(set(of_unused)) <= SAMPLES / 2,
        f"{said}: the notebook looked at one sample first, which made the generator, and both "
        "workers got a copy of it.",
        "Remember the torch.initial_seed() it was made from, and make a new one if that differs.",
    )
    expect(
        distinct > SAMPLES / 2,
        f"{said}: both workers draw the same ones. Each has a copy of one generator, or seeded its "
        "own with the same number.",
        "Make the generator in the worker, from torch.initial_seed(), which differs in each.",
    )


def _epoch(dataset: Any, num_workers: int) -> list[float]:
    batches = loader(dataset, batch_size=4, num_workers=num_workers)
    return [float(value) for batch in batches for value in batch]
