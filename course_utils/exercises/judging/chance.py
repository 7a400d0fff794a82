"""Judge what is drawn: random states, and how well an order is mixed."""

import pickle
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch

from course_utils.teaching.exercise import expect

Item = TypeVar("Item", bound=Hashable)


def random_state() -> tuple[bytes, ...]:
    """Return the state of each generator that all code shares: torch, NumPy, Python."""
    theirs = torch.get_rng_state().numpy().tobytes()
    return theirs, pickle.dumps(np.random.get_state()), pickle.dumps(random.getstate())


@contextmanager
def random_numbers_of(seed: int) -> Iterator[None]:
    """Let the process have the random numbers of `seed`, and its own ones again afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed is slow before CUDA is used
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def expect_no_seed(call: Callable[[], Any]) -> None:
    """Refuse an answer that seeds a random generator of the process. It may draw from them."""
    states = []
    for seed in (1, 2):
        with random_numbers_of(seed):
            call()
            states.append(random_state())
    expect(
        all(first != second for first, second in zip(*states, strict=True)),
        "Your answer seeds a random generator of the whole process. From then on, other code draws "
        "the same numbers in every epoch, for example dropout.",
        "Create your own generator, such as np.random.default_rng(epoch).",
    )


def stay_together(order: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """Return the share of neighbors in one order that are neighbors in the other."""
    here, there = ({frozenset(pair) for pair in pairwise(items)} for items in (order, other))
    return len(here & there) / len(here)


def rank_correlation(order: Sequence[Any], other: Sequence[Any]) -> float:
    """Return Spearman's correlation between the positions of the same items in two orders."""
    place = {item: position for position, item in enumerate(other)}
    return float(np.corrcoef(range(len(order)), [place[item] for item in order])[0, 1])


def expect_mixed(epochs: Sequence[Sequence[Item]], on_disk: Sequence[Item]) -> None:
    """Refuse orders that follow the disk or each other, forwards, backwards or turned around.

    Args:
        epochs: The items of each epoch, in the order in which they were served.
        on_disk: The same items in the order in which they are stored.
    """
    limit = 5 / max(1, len(on_disk) - 1) ** 0.5  # five standard deviations of random orders
    orders = [("the order on disk", on_disk), *((f"epoch {n}", o) for n, o in enumerate(epochs))]
    for here, order in enumerate(epochs, 1):
        expect(
            Counter(order) == Counter(on_disk),
            f"Epoch {here - 1} serves {len({*order})} of {len(on_disk)} items, and {len(order)} in "
            "all. Each must come once, in every epoch.",
            "Shuffle all items in one order, which depends on the epoch but not on the rank.",
        )
        for name, other in orders[:here]:
            correlation = rank_correlation(order, other)
            neighbors = stay_together(order, other)
            expect(
                abs(correlation) < limit and neighbors < 0.5,
                f"Epoch {here - 1} is not mixed: compared with {name}, the rank correlation is "
                f"{correlation:.2f}, and {neighbors:.0%} of all neighbors are still neighbors.",
                "Draw a new random order for each epoch, over everything that may be mixed.",
            )


def shuffled(items: Sequence[Item], seed: int) -> list[Item]:
    """Return the items in a random order that depends on the seed alone."""
    return random.Random(seed).sample(list(items), len(items))
