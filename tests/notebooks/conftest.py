"""What the tests of the notebooks share: built copies, data made once, and a table of times."""

import os
import shutil
from pathlib import Path

import pytest

from course_utils.paths import data_path

_TIMES = pytest.StashKey[dict[str, float]]()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name a folder with data of size S: `$COURSE_DATA` if set, else made once for all tests."""
    folder = Path(os.environ.get("COURSE_DATA") or tmp_path_factory.mktemp("data"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_DATA", str(folder))
        for name in ("events", "images"):
            data_path(name, "S")
    return folder


@pytest.fixture
def times(request: pytest.FixtureRequest) -> dict[str, float]:
    """Collect seconds by name, printed when all tests are through."""
    return request.config.stash.setdefault(_TIMES, {})


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    times = config.stash.get(_TIMES, {})
    if times:
        terminalreporter.section("seconds per notebook, size S")
        for name, seconds in sorted(times.items()):
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name a copy of the sample source and its checks."""
    folder = tmp_path_factory.mktemp("sample")
    shutil.copytree(Path(__file__).parent / "sample", folder, dirs_exist_ok=True)
    return folder
