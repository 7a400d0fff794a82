"""Fixtures for the tests of loaders: a folder for staging, and no rank."""

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


@pytest.fixture(autouse=True)
def _one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
