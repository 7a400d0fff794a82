"""Which version of which notebook is run under which way to start workers.

By default the learner versions run in JupyterLab in a real browser, under forkserver
(`tests/browser`), and the solutions with every longer cell interrupted, under fork and spawn by
turns. With COURSE_TEST_MATRIX=full each version meets every way, and the solutions also run
undisturbed.
"""

import multiprocessing
import os
from collections.abc import Sequence

import pytest

METHODS = [
    method
    for method in ("fork", "spawn", "forkserver")
    if method in multiprocessing.get_all_start_methods()
]
FULL = os.environ.get("COURSE_TEST_MATRIX") == "full"


def turns(names: Sequence[str], *, first: int = 0) -> pytest.MarkDecorator:
    """Parametrise a test by `name` and `start_method`: two of them by turns, or all.

    Args:
        names: of the notebooks.
        first: which method the first of them gets; tests with different ones complement each other.
    """
    cases = [
        (name, method)
        for number, name in enumerate(names)
        for place, method in enumerate(METHODS)
        if FULL or place == (number + first) % min(2, len(METHODS))
    ]
    return pytest.mark.parametrize(("name", "start_method"), cases)
