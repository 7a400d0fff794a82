"""A fixture for the tests of loading: small data."""

import shutil
from pathlib import Path

import pytest

from course_utils.loading.events import CONVERTED
from data_scripts.convert_events import add_formats


@pytest.fixture(scope="session")
def all_formats(events_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 600 events in all formats. Do not write to it."""
    folder = tmp_path_factory.mktemp("all") / "events"
    shutil.copytree(events_folder, folder)
    add_formats(folder, CONVERTED)
    return folder
