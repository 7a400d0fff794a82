import os

import pytest

from course_utils.hardware.machine import drop_cache


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise here")
def test_files_in_a_folder_are_flushed_and_dropped(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    for file in (tmp_path / "a", tmp_path / "deep" / "b"):
        file.write_bytes(b"x" * 1_000_000)
    assert drop_cache(tmp_path) == "Cold: 2 files, 2.0 MB dropped from the page cache."
    calls: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: calls.append("drop"))
    assert drop_cache(str(tmp_path / "a")).startswith("Cold: 1 file")
    assert calls == ["fsync", "drop"]
    monkeypatch.delattr(os, "posix_fadvise")
    assert drop_cache(tmp_path / "a").startswith("Warm: 1 file")
    with pytest.raises(FileNotFoundError, match="Pass an existing file or folder"):
        drop_cache(tmp_path / "missing")
