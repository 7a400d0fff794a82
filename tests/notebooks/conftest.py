"""Fixtures of the notebook tests: the data and a sample notebook."""

from pathlib import Path

import pytest
from filelock import FileLock

from course_utils.paths import data_root
from course_utils.teaching.notebook import DATA_SETS, data_path


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the data folder with all data sets of size S, created once for all processes."""
    folder = data_root()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".tests.lock"):
        for name in DATA_SETS:
            data_path(name, "S")
    return folder


@pytest.fixture(scope="session")
def sample() -> Path:
    """Return the folder with the sample source and its checks. Do not write to it."""
    return Path(__file__).parent / "sample"
