"""Which version of which notebook a short run takes where: each version of each of them once.

The learner versions run headless, or in a real browser; the solutions run undisturbed, or with each
long cell interrupted. The full run takes all of that for all of them.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from notebooks.build import number as number_of

IN_THE_BROWSER = {"02"}
ALIKE = {"B"}  # nothing is to be solved: both versions run the same cells
INTERRUPTED = {"04", "07"}  # whose cells keep workers, and locks, for long
MANY_WORKERS = {"04", "05", "07", "08", "10"}


def take(
    notebooks: Iterable[Path], *, only: Iterable[str] = (), but: Iterable[str] = ()
) -> pytest.MarkDecorator:
    """Parametrise by `notebook`; a short run takes `only` those numbers, or all `but` those."""
    return pytest.mark.parametrize(
        "notebook",
        [
            pytest.param(path, id=path.stem, marks=_marks(number, taken))
            for path in notebooks
            for number in [number_of(path)]
            for taken in [number in only if only else number not in but]
        ],
    )


def _marks(number: str, taken: bool) -> list[pytest.MarkDecorator]:
    many = [pytest.mark.many_workers] if number in MANY_WORKERS else []
    return many if taken else [*many, pytest.mark.full]
