"""What the tests of the notebooks share: built copies, and data made once."""

import os
import shutil
from pathlib import Path

import pytest

from course_utils.teaching.notebook import DATA_SETS, data_path


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name a folder with data of size S: `$COURSE_DATA` if set, else made once for all tests."""
    folder = Path(os.environ.get("COURSE_DATA") or tmp_path_factory.mktemp("data"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_DATA", str(folder))
        for name in DATA_SETS:
            data_path(name, "S")
    return folder


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name a copy of the sample source and its checks."""
    folder = tmp_path_factory.mktemp("sample")
    shutil.copytree(Path(__file__).parent / "sample", folder, dirs_exist_ok=True)
    return folder
