"""The folder beside the notebook."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from course_utils.teaching.notebook import FOLDER, state_folder


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    state_folder.cache_clear()
    yield
    state_folder.cache_clear()


def test_it_lies_beside_the_notebook_and_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert state_folder() == tmp_path / FOLDER
    monkeypatch.chdir("/")
    assert state_folder() == tmp_path / FOLDER


def test_git_does_not_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (state_folder() / ".gitignore").read_text("utf-8") == "*\n"


def test_where_nothing_can_be_written_it_is_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER).touch()  # a file in the way stops even an administrator
    monkeypatch.chdir(tmp_path)
    assert state_folder().is_dir()
    assert state_folder().parent != tmp_path
