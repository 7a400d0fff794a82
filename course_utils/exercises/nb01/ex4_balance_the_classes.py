"""Exercise 01.4: count the pictures of each class, and draw all classes equally often."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from torchvision.datasets import ImageFolder

from course_utils.exercises.judging.compare import Slip, compare
from course_utils.teaching.exercise import Verdict, exercise, refuse, right

Counts = Mapping[str, int]

CASES: tuple[Counts, ...] = (
    {"cat": 2, "dog": 1},
    {"cat": 7, "dog": 300, "owl": 1, "rat": 40},
    {f"class {number:02d}": 1 + number % 4 for number in range(30)},
)
SHARES = "share of each class in the sum of weights"
UNEQUAL = Slip(
    lambda _, got, wanted: (
        {**got, SHARES: 0} == {**wanted, SHARES: 0} and got[SHARES] != wanted[SHARES]
    ),
    "The counts are right, but the weights are not. With {case}, the classes have shares of "
    "{got[share of each class in the sum of weights]:.100}, and these must be equal.",
    "Give a picture of a class of n the weight 1/n, without rounding it.",
)


@exercise("01.4", title="Find the class imbalance", seconds=30)
def balance_the_classes(balance: Callable[[ImageFolder], tuple[Any, Sequence[float]]]) -> Verdict:
    """Check counts and weights for folders of pictures that must not be opened."""
    compare(partial(_facts, balance), _balanced, CASES, UNEQUAL, show="folders with {}".format)
    return right(
        "Each class is drawn equally often, and you opened no picture. Rare pictures are now drawn "
        "many times in an epoch. The classes are balanced, but the pictures are not new."
    )


def _facts(balance: Callable[[ImageFolder], Any], counts: Counts) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as root:
        for name, count in counts.items():
            Path(root, name).mkdir()
            for number in range(count):
                Path(root, name, f"{number}.jpg").touch()
        answer = balance(ImageFolder(root, loader=_refuse))
    try:
        known, weights = answer
        numbers = np.array([float(weight) for weight in weights])
        if not isinstance(weights, Mapping | set) and not isinstance(weights[0], str):
            return _about(known, numbers, counts)
    except (TypeError, ValueError):
        pass
    refuse(
        "Your function must return a dict of counts, and a list with one number for each picture. "
        "A dict, a set or a generator of weights is of no use to the sampler.",
        "Write return counts, weights, and create both from images.targets.",
    )


def _about(known: Any, weights: Any, counts: Counts) -> dict[str, Any]:
    ends = np.cumsum([*counts.values()])[:-1]
    sums = [part.sum() / (weights.sum() or 1) for part in np.split(weights, ends)]
    shares = ", ".join(f"{share:.0%}" for share in sums)
    return {"counts": known, "number of weights": len(weights), SHARES: shares}


def _balanced(counts: Counts) -> dict[str, Any]:
    weights = np.array([1 / n for n in counts.values() for _ in range(n)])
    return _about(counts, weights, counts)


def _refuse(path: str) -> NoReturn:
    refuse(
        "Your function opens a picture. With millions of pictures, this takes hours.",
        "Use images.targets and images.classes. They contain everything you need.",
    )
