"""Judge what is drawn: whether it depends on the process, and how well it is mixed."""

import os
import pickle
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import torch


def random_state() -> tuple[bytes, ...]:
    """Return the state of each generator that nobody made for himself: torch, NumPy, Python."""
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


class Elsewhere(str):
    """A text that hashes as in another process, also inside of a tuple or a set."""

    def __hash__(self) -> int:
        return str.__hash__(f"elsewhere {self}")


@contextmanager
def in_another_process(function: Callable[..., Any] | None = None) -> Iterator[None]:
    """Let `hash` of a text, or of a tuple with texts, and `getpid` answer as they might there.

    The notebook of `function` may have imported getpid by its name.
    """

    def there(thing: object) -> object:
        if isinstance(thing, tuple):
            return tuple(map(there, thing))
        return Elsewhere(thing) if isinstance(thing, str) else thing

    hashed, number = patch("builtins.hash", lambda thing: there(thing).__hash__()), os.getpid() + 1
    names = getattr(function, "__globals__", {})
    bound = {name: lambda: number for name, one in names.items() if one is os.getpid}
    with hashed, patch("os.getpid", lambda: number), patch.dict(names, bound):
        yield


def stay_together(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """Return the share of neighbours in one order that are neighbours in the other."""
    here, there = ({frozenset(pair) for pair in pairwise(order)} for order in (one, other))
    return len(here & there) / len(here)
