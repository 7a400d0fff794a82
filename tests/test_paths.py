"""Where things lie, what the environment can change about it, and how errors are said."""

import errno
from pathlib import Path

import pytest

from course_utils import paths
from keepfed.errors import KeepfedError, sentence
from keepfed.files import replace_file


def test_the_environment_says_where_data_lie_and_how_large_they_are(monkeypatch, tmp_path):
    monkeypatch.delenv("COURSE_DATA", raising=False)
    monkeypatch.delenv("COURSE_SIZE")
    assert (paths.data_root(), paths.data_size()) == ((paths.REPO / "data").resolve(), "M")
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.setenv("COURSE_SIZE", "l")
    assert (paths.data_root(), paths.data_size()) == (tmp_path, "L")
    monkeypatch.setenv("COURSE_SIZE", "XL")
    with pytest.raises(KeepfedError, match="choose S, M or L"):
        paths.data_size()


def test_a_recording_is_found_from_any_folder_or_refused_with_those_there_are(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert paths.recording("dlio_unet3d.pfw.gz").is_file()
    with pytest.raises(KeepfedError, match=r"no recording 'dlio'. Choose one of: .*dlio_unet3d"):
        paths.recording("dlio")


@pytest.mark.parametrize("is_in_the_way", [False, True])
def test_scratch_lies_beside_the_notebook_unless_nothing_can_be_written_there(
    tmp_path, monkeypatch, is_in_the_way
):
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


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    replace_file(path, "old")

    def full(self, content):
        raise OSError(28, "full")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="full"):
        replace_file(path, "new")
    assert path.read_text("utf-8") == "old"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "The disk is full at /x. Free some space, or pay, and run again."),
        (errno.EROFS, "Writing to /x is not allowed. To fix this, pay, and run again."),
        (errno.EIO, "/x: broken. Fix this and run again."),
    ],
)
def test_an_error_of_the_system_becomes_one_sentence_with_the_next_step(number, said):
    assert sentence(OSError(number, "broken", "/x"), elsewhere="pay") == said
