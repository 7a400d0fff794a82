"""Paths, the environment variables that change them, and messages of system errors."""

import errno
from pathlib import Path

import pytest

from course_utils import paths
from keepfed.errors import KeepfedError, sentence
from keepfed.files import replace_file


def test_environment_sets_data_folder_and_size(monkeypatch, tmp_path):
    monkeypatch.delenv("COURSE_DATA", raising=False)
    monkeypatch.delenv("COURSE_SIZE")
    assert (paths.data_root(), paths.data_size()) == ((paths.REPO / "data").resolve(), "M")
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.setenv("COURSE_SIZE", "l")
    assert (paths.data_root(), paths.data_size()) == (tmp_path, "L")
    monkeypatch.setenv("COURSE_SIZE", "XL")
    with pytest.raises(KeepfedError, match="Choose S, M or L"):
        paths.data_size()


def test_recording_is_found_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert paths.recording("dlio_unet3d.pfw.gz").is_file()
    with pytest.raises(KeepfedError, match=r"no recording 'dlio'. Choose one of: .*dlio_unet3d"):
        paths.recording("dlio")


@pytest.mark.parametrize("is_in_the_way", [False, True])
def test_scratch_is_next_to_notebook_if_writable(tmp_path, monkeypatch, is_in_the_way):
    if is_in_the_way:
        (tmp_path / paths.SCRATCH).touch()  # an existing file blocks even root
    monkeypatch.chdir(tmp_path)
    paths.scratch_folder.cache_clear()
    folder = paths.scratch_folder()
    monkeypatch.chdir("/")
    assert paths.scratch_folder() == folder
    assert folder.is_dir()
    assert (folder == tmp_path / paths.SCRATCH) != is_in_the_way
    assert is_in_the_way or (folder / ".gitignore").read_text("utf-8") == "*\n"
    paths.scratch_folder.cache_clear()


def test_file_is_replaced_atomically(tmp_path, monkeypatch):
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
def test_system_error_becomes_message_with_next_step(number, said):
    assert sentence(OSError(number, "broken", "/x"), elsewhere="pay") == said
