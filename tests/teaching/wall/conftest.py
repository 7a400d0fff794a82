"""A home for the choice of a wall, a fake wall, and a kernel that has joined none."""

from collections.abc import Iterator
from pathlib import Path

import ipywidgets as widgets
import pytest

from course_utils.teaching.wall import kernel
from tests.teaching.wall.helpers import FakeWall, running_wall


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    monkeypatch.delenv("COURSE_WALL", raising=False)
    monkeypatch.setattr(kernel, "_sender", None)
    yield tmp_path
    if kernel._sender:  # its thread must not post to the wall of the next test
        kernel._sender._posts.clear()
    kernel._button.cache_clear()
    widgets.Widget.close_all()


@pytest.fixture
def wall() -> Iterator[FakeWall]:
    with running_wall() as wall:
        yield wall
