"""Fixtures of the course's tests: small data, the scratch folder, and seconds for the summary."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from course_utils.paths import scratch_folder
from course_utils.teaching.notebook import cleanup_workers
from course_utils.teaching.notebook.start import PRELOAD

os.environ.setdefault("COURSE_SIZE", "S")
# jsonschema, which reads every notebook, needs over a second to build its grammar of addresses.
sys.modules.setdefault("rfc3987_syntax", None)
# tests.fixtures is in keepfed/tests; both folders are one namespace
pytest_plugins = ["tests.fixtures", "tests.schedule"]


def pytest_sessionstart() -> None:
    """Let the forkserver preload the same modules as in the notebooks."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        multiprocessing.set_forkserver_preload(list(PRELOAD))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the scratch folder of a notebook in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    scratch_folder.cache_clear()
    yield scratch_folder()
    scratch_folder.cache_clear()


@pytest.fixture
def end_loops() -> Iterator[None]:
    """End the leftovers of a test's loops, because torch would wait ten seconds for them."""
    yield
    cleanup_workers()


@pytest.fixture(scope="session")
def events_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 600 events in the usual formats. Do not write into it."""
    from data_scripts import make_events

    folder = tmp_path_factory.mktemp("data") / "events"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_events.COUNTS, "S", 600)
        assert make_events.main(["--size", "S", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def record_seconds(record_property: Callable[[str, object], None]) -> Callable[[str, float], None]:
    """Return a function that records CPU seconds by name for the summary."""
    title = "CPU seconds per notebook, size S"
    return lambda name, seconds: record_property(title, f"{seconds:7.1f}  {name}")
