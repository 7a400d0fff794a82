"""What the tests of the checks share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Name a folder for the modules of a notebook; this process and its workers find them there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv("PYTHONPATH", "")
        yield tmp_path_factory.mktemp("cells")
