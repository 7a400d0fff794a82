import os

import pytest

from course_utils.hardware.machine import drop_cache
from course_utils.hardware.machine.disk import measure_disk


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise here")
def test_files_in_a_folder_are_flushed_dropped_and_unchanged(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    files = [tmp_path / "a", tmp_path / "deep" / "b"]
    for file in files:
        file.write_bytes(b"x" * 1_000_000)
    dropped = drop_cache(tmp_path)
    assert dropped
    assert repr(dropped) == "Cold: 2 files, 2.0 MB dropped from the page cache."
    assert all(file.read_bytes() == b"x" * 1_000_000 for file in files)
    calls: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: calls.append("drop"))
    assert drop_cache(str(files[0])).files == 1
    assert calls == ["fsync", "drop"]


def test_unsupported_system_returns_false_and_reports_warm(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    (tmp_path / "a").write_bytes(b"1234")
    dropped = drop_cache(tmp_path)
    assert not dropped
    assert repr(dropped).startswith("Warm: 1 file")
    with pytest.raises(FileNotFoundError, match="Pass an existing file or folder"):
        drop_cache(tmp_path / "missing")


def test_disk_is_measured_and_left_unchanged(tmp_path):
    speed = measure_disk(tmp_path)
    assert 0 < speed.megabytes <= 68
    assert min(speed.write_mb_s, speed.read_mb_s) > 0
    assert list(tmp_path.iterdir()) == []
