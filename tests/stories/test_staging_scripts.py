"""The staging scripts behave as notebook 07 explains, in bash and in Python."""

import os
import shutil
from pathlib import Path

import pytest

from course_utils.stories.staging_scripts import COMMON_SCRIPT, REPAIRED_SCRIPT, run_script
from keepfed.errors import KeepfedError


@pytest.fixture(params=["bash", "python"], autouse=True)
def _language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    elif shutil.which("bash") is None or os.name == "nt":
        pytest.skip("bash is not installed")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "run 7 pulses.bin"  # spaces, which a shell splits
    path.write_bytes(bytes(range(250)) * 40)
    return path


@pytest.fixture
def place(tmp_path: Path, source: Path) -> Path:
    """Return a folder with a truncated copy."""
    folder = tmp_path / "shm of a node"
    folder.mkdir()
    (folder / source.name).write_bytes(source.read_bytes()[:5000])
    return folder


def test_common_script_accepts_truncated_copy(source: Path, place: Path) -> None:
    assert run_script(COMMON_SCRIPT, source, place).stat().st_size == 5000


@pytest.mark.parametrize("seconds", [-1000, 1000])
def test_repaired_script_copies_only_truncated_or_changed_files(
    source: Path, place: Path, seconds: int
) -> None:
    assert run_script(REPAIRED_SCRIPT, source, place).read_bytes() == source.read_bytes()
    assert {path.suffix for path in place.iterdir()} == {".bin", ".lock"}
    first, second = (run_script(REPAIRED_SCRIPT, source, place).stat() for _ in range(2))
    assert second.st_ino == first.st_ino
    source.write_bytes(b"x" * source.stat().st_size)
    os.utime(source, (first.st_mtime + seconds, first.st_mtime + seconds))
    assert run_script(REPAIRED_SCRIPT, source, place).read_bytes()[:1] == b"x"


def test_failing_script_raises_error(source: Path, place: Path) -> None:
    for path in (source, place / source.name):
        path.unlink()
    with pytest.raises((KeepfedError, FileNotFoundError), match=r"pulses\.bin"):
        run_script(REPAIRED_SCRIPT, source, place)
    assert not (place / source.name).exists()
