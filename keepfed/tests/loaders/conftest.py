"""Fixtures for the tests of loaders: a folder and a file for staging."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def shm() -> Iterator[Path]:
    """Return an empty folder in /dev/shm, or in the temporary folder of this system."""
    root = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=root) as folder:
        yield Path(folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "pulses.npy"
    path.write_bytes(os.urandom(12_000_000))
    return path
