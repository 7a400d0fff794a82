"""What the tests of the notebooks share: built copies, data made once, and a table of times."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from course_utils.paths import data_path

_SECONDS = "seconds per notebook, size S"


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
def note_seconds(
    record_property: Callable[[str, object], None],
) -> Callable[[str, float], None]:
    """Take seconds under a name, to be printed when all tests are through."""
    return lambda name, seconds: record_property(_SECONDS, (name, seconds))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for group in terminalreporter.stats.values() for report in group]
    properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    noted = {tuple(value) for key, value in properties if key == _SECONDS}
    if noted:
        terminalreporter.section(_SECONDS)
        for name, seconds in sorted(noted):
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name a copy of the sample source and its checks."""
    folder = tmp_path_factory.mktemp("sample")
    shutil.copytree(Path(__file__).parent / "sample", folder, dirs_exist_ok=True)
    return folder
