"""Which version of which notebook is run under which way to start workers.

Every notebook meets every way: the learner version one, the solutions another, and the solutions
with every longer cell interrupted the third. With COURSE_TEST_MATRIX=full each meets them all.
"""

import multiprocessing
import os
from collections.abc import Sequence

import pytest

METHODS = ("fork", "spawn", "forkserver")
RUNS = ("learner", "solutions", "interrupted")


def turns(names: Sequence[str], run: str) -> pytest.MarkDecorator:
    """Parametrise a test by `name` and `start_method`."""
    everything = os.environ.get("COURSE_TEST_MATRIX") == "full"
    cases = [
        (name, method)
        for number, name in enumerate(names)
        for place, method in enumerate(METHODS)
        if everything or place == (number + RUNS.index(run)) % len(METHODS)
        if method in multiprocessing.get_all_start_methods()
    ]
    return pytest.mark.parametrize(("name", "start_method"), cases)
