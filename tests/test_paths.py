import errno
import os

import pytest

from course_utils import paths
from keepfed.errors import KeepfedError, sentence
from keepfed.files import replace_file


def test_environment_sets_data_folder_and_size(monkeypatch, tmp_path):
    monkeypatch.delenv("COURSE_DATA", raising=False)
    monkeypatch.delenv("COURSE_SIZE")
    assert paths.data_root() == (paths.REPO / "data").resolve()
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    assert paths.data_size() == "M"
    monkeypatch.setenv("COURSE_SIZE", "l")
    assert (paths.data_root(), paths.data_size()) == (tmp_path, "L")
    monkeypatch.setenv("COURSE_SIZE", "XL")
    with pytest.raises(KeepfedError, match="Choose S, M or L"):
        paths.data_size()


def test_recording_is_found_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert paths.recording("dlio_unet3d.trace.json.gz").is_file()
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


@pytest.mark.skipif(os.name == "nt", reason="Windows lets few users make links, and has no modes")
def test_replaced_file_is_the_old_or_the_new_one_and_follows_no_link(tmp_path):
    path, victim = tmp_path / "a.json", tmp_path / "victim"
    replace_file(path, "old", mode=0o600)
    victim.write_text("mine", "utf-8")
    (tmp_path / f".a.json.{os.getpid()}.part").symlink_to(victim)
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "\ud800")
    assert (path.read_text("utf-8"), path.stat().st_mode & 0o777) == ("old", 0o600)
    replace_file(path, b"new")
    assert (path.read_text("utf-8"), victim.read_text("utf-8")) == ("new", "mine")
    assert {file.name for file in tmp_path.iterdir()} == {"a.json", "victim"}


def test_system_error_becomes_message_with_next_step():
    for number, said in (
        (errno.ENOSPC, "The disk is full at /x. Free some space, or pay, and run again."),
        (errno.EROFS, "Writing to /x is not allowed. To fix this, pay, and run again."),
        (errno.EIO, "/x: broken. Fix this and run again."),
    ):
        assert sentence(OSError(number, "broken", "/x"), elsewhere="pay") == said, number
