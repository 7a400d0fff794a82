"""A home for the choice of a wall, a fake wall, and a kernel that has joined none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from course_utils.teaching.wall import kernel
from tests.teaching.wall.helpers import FakeWall, running_wall


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    monkeypatch.delenv("COURSE_WALL", raising=False)
    monkeypatch.setattr(kernel, "_sender", None)
    return tmp_path


@pytest.fixture
def wall() -> Iterator[FakeWall]:
    with running_wall() as wall:
        yield wall
