"""Where things lie, and what the environment can change about it."""

from pathlib import Path

import pytest

from course_utils import paths
from course_utils.errors import CourseError


def test_data_lie_in_the_project_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COURSE_DATA", raising=False)
    assert paths.data_root() == (paths.REPO / "data").resolve()
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    assert paths.data_root() == tmp_path


def test_the_size_is_m_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COURSE_SIZE")
    assert paths.size() == "M"
    monkeypatch.setenv("COURSE_SIZE", "l")
    assert paths.size() == "L"
    monkeypatch.setenv("COURSE_SIZE", "XL")
    with pytest.raises(CourseError, match="choose S, M or L"):
        paths.size()


def test_a_recording_is_found_from_any_folder_or_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.recording("dlio_unet3d.pfw.gz").is_file()
    with pytest.raises(CourseError, match=r"no recording 'dlio'; choose one of: .*dlio_unet3d"):
        paths.recording("dlio")


@pytest.mark.parametrize("is_in_the_way", [False, True])
def test_scratch_lies_beside_the_notebook_unless_nothing_can_be_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_the_way: bool
) -> None:
    if is_in_the_way:
        (tmp_path / paths.SCRATCH).touch()  # a file in the way stops even an administrator
    monkeypatch.chdir(tmp_path)
    paths.scratch_folder.cache_clear()
    folder = paths.scratch_folder()
    monkeypatch.chdir("/")
    assert paths.scratch_folder() == folder
    assert folder.is_dir()
    assert (folder == tmp_path / paths.SCRATCH) != is_in_the_way
    assert is_in_the_way or (folder / ".gitignore").read_text("utf-8") == "*\n"
    paths.scratch_folder.cache_clear()


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    paths.replace_file(path, "old")

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "full")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="full"):
        paths.replace_file(path, "new")
    assert path.read_text("utf-8") == "old"
