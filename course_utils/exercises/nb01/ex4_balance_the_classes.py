"""Exercise 01.4: count the pictures of each class, and draw all classes equally often."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from torchvision.datasets import ImageFolder

from course_utils.exercises.judging.compare import Slip, compare
from course_utils.teaching.exercise import Verdict, exercise, refuse, right

CASES = {"cat": 2, "dog": 1}, {"cat": 7, "dog": 300, "owl": 1, "rat": 40}


class Answer(NamedTuple):
    """Pictures of each class, and weights that are scaled to a sum of 1."""

    counts: Mapping[str, int]
    weights: NDArray[np.float64]

    def __repr__(self) -> str:
        counts = dict(self.counts) if isinstance(self.counts, Mapping) else self.counts
        return f"{counts}, weights {self.weights.round(2).tolist()}"

    @property
    def sums(self) -> list[str]:
        """Sum of the weights of each class, in percent."""
        ends = np.cumsum([self.counts[name] for name in sorted(self.counts)])
        return [f"{part.sum():.1%}" for part in np.split(self.weights, ends[:-1])]

    def agrees(self, other: "Answer") -> bool:
        """Return whether the counts are equal, and the weights equal within 1 %."""
        return self.counts == other.counts and self.weighs_like(other)

    def weighs_like(self, other: "Answer") -> bool:
        """Return whether the weights are equal within 1 %."""
        same = self.weights.shape == other.weights.shape
        return same and np.allclose(self.weights, other.weights, rtol=0.01, atol=0)


def _balanced(counts: Mapping[str, int]) -> Answer:
    """Return the answer that gives each class the same sum of weights."""
    weights = np.array([1 / n for n in counts.values() for _ in range(n)])
    return Answer(counts, weights / weights.sum())


SLIPS = (
    Slip(
        lambda _, got, __: not isinstance(got, Answer),
        "Your function must return a dict of counts, and a list with one number for each picture. "
        "A dict, a set or a generator of weights is of no use to the sampler.",
        "Write return counts, weights, and create both from images.targets.",
    ),
    Slip(
        lambda counts, got, _: len(got.weights) == len(counts),
        "You return one weight for each class. The sampler uses them for the first pictures, and "
        "draws only those.",
        "Give each picture the weight of its class, in the order of images.targets.",
    ),
    Slip(
        lambda _, got, wanted: (
            got.counts == wanted.counts and got.weights.any() and not got.weighs_like(wanted)
        ),
        "The counts are right, but the weights are not. In {case}, the classes have {got.sums} of "
        "all weights, and these shares must be equal.",
        "Give a picture of a class of n the weight 1/n, without rounding it.",
    ),
)


@exercise("01.4", title="Find the class imbalance", seconds=30)
def balance_the_classes(balance: Callable[[ImageFolder], tuple[Any, Sequence[float]]]) -> Verdict:
    """Check counts and weights for folders of pictures that must not be opened."""
    compare(partial(_answer, balance), _balanced, CASES, *SLIPS, same=Answer.agrees)
    return right(
        "Each class is drawn equally often, and you opened no picture. Rare pictures are now drawn "
        "many times in an epoch. The classes are balanced, but the pictures are not new."
    )


def _answer(balance: Callable[[ImageFolder], Any], counts: Mapping[str, int]) -> Any:
    """Return the answer, or what the function returned if it has another form."""
    with tempfile.TemporaryDirectory() as root:
        for name, count in counts.items():
            Path(root, name).mkdir()
            for number in range(count):
                Path(root, name, f"{number}.jpg").touch()
        found = balance(ImageFolder(root, loader=_refuse))
    try:
        known, weights = found
        given = np.asarray(weights)
        numbers = given.astype(float)
    except (TypeError, ValueError):
        return found
    is_list = given.ndim == 1 and given.dtype.kind != "U"
    return Answer(known, numbers / (numbers.sum() or 1)) if is_list else found


def _refuse(path: str) -> NoReturn:
    refuse(
        "Your function opens a picture. With millions of pictures, this takes hours.",
        "Use images.targets and images.classes. They contain everything you need.",
    )
