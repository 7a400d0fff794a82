"""Mutants of the solutions are refused, or `survivors.toml` explains why they are equivalent."""

from pathlib import Path

import pytest

from tests.exercises.mutants import explained, mutants, survivors
from tests.exercises.test_attempts import HERE_JUDGED, _hurry


@pytest.mark.full
@pytest.mark.parametrize("key", HERE_JUDGED)
def test_each_mutant_is_refused_or_explained(key: str, folder: Path) -> None:
    with _hurry():
        found = {*survivors(key, folder)}
    assert found - {*explained().get(key, {})} == set()


def test_explained_mutants_exist() -> None:
    for key, reasons in explained().items():
        assert {*reasons} <= {what for what, _ in mutants(key)}, key
