"""The staging scripts behave as notebook 07 explains, in bash and in Python."""

import os
import shutil
from pathlib import Path

import pytest

from course_utils.loading.events import MemmapEvents
from course_utils.stories.data_places import break_even
from course_utils.stories.staging_scripts import COMMON_SCRIPT, REPAIRED_SCRIPT, run_script
from course_utils.teaching.notebook import data_path
from keepfed.errors import KeepfedError

needs_bash = pytest.mark.skipif(
    shutil.which("bash") is None or os.name == "nt", reason="bash is not installed"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "run 7 pulses.bin"  # spaces, which a shell splits
    path.write_bytes(bytes(range(250)) * 40)
    return path


@pytest.fixture
def place(tmp_path: Path, source: Path) -> Path:
    folder = tmp_path / "shm of a node"
    folder.mkdir()
    (folder / source.name).write_bytes(source.read_bytes()[:5000])
    return folder


@pytest.mark.parametrize("has_bash", [pytest.param(True, marks=needs_bash), False])
def test_common_script_accepts_truncated_copy(
    source: Path, place: Path, has_bash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_bash:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run_script(COMMON_SCRIPT, source, place).stat().st_size == 5000
    assert run_script(REPAIRED_SCRIPT, source, place).read_bytes() == source.read_bytes()


@needs_bash
def test_repaired_script_refuses_a_damaged_copy(
    source: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cp").write_text(f'#!/bin/sh\n{shutil.which("cp")} "$@"; echo >> "$3"\n')
    (tmp_path / "cp").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(KeepfedError):
        run_script(REPAIRED_SCRIPT, source, place)


@needs_bash
def test_repaired_script_copies_only_truncated_or_changed_files(source: Path, place: Path) -> None:
    first, second = (run_script(REPAIRED_SCRIPT, source, place).stat() for _ in range(2))
    assert {path.suffix for path in place.iterdir()} == {".bin", ".lock"}
    assert second.st_ino == first.st_ino
    for text, seconds in (b"x", -1000), (b"y", 1000):
        source.write_bytes(text * source.stat().st_size)
        os.utime(source, (first.st_mtime + seconds, first.st_mtime + seconds))
        assert run_script(REPAIRED_SCRIPT, source, place).read_bytes()[:1] == text
    for path in (source, place / source.name):
        path.unlink()
    with pytest.raises(KeepfedError, match=r"pulses\.bin"):
        run_script(REPAIRED_SCRIPT, source, place)
    assert not (place / source.name).exists()


def test_staging_one_file_waits_less_than_a_cold_epoch() -> None:
    folder = data_path("events", "S")
    stage_s, cold_s = break_even("busy Lustre", MemmapEvents, folder, "npy")
    assert stage_s < cold_s
