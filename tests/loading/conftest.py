"""Fixtures for the tests of loading: small data, a folder for staging, and no rank."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_utils.loading.events import CONVERTED
from data_scripts import make_images
from data_scripts.convert_events import add_formats


@pytest.fixture(scope="session")
def all_formats(events_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 600 events in all formats. Do not write to it."""
    folder = tmp_path_factory.mktemp("all") / "events"
    shutil.copytree(events_folder, folder)
    add_formats(folder, CONVERTED)
    return folder


@pytest.fixture(scope="session")
def images_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 200 images. Do not write to it."""
    folder = tmp_path_factory.mktemp("data") / "images"
    assert make_images.main(["--size", "S", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def shm() -> Iterator[Path]:
    """Return an empty folder in /dev/shm, or in the temporary folder of this system."""
    root = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=root) as folder:
        yield Path(folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file of 12 MB for staging."""
    path = tmp_path / "pulses.npy"
    path.write_bytes(os.urandom(12_000_000))
    return path


@pytest.fixture(autouse=True)
def _one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a rank from the environment of the tests."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
