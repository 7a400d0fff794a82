import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_scripts import files
from data_scripts.command import Build, DatasetScript

Said = pytest.CaptureFixture[str]


def build(folder: Path, size: str, seed: int) -> files.Facts:
    (folder / "a.txt").write_text(f"{size} {seed}")
    (folder / "b.txt").write_text("b")
    return {"counts": {"things": 3}}


def failing(error: BaseException) -> Build:
    def build_half(folder: Path, size: str, seed: int) -> files.Facts:
        (folder / "a.txt").write_text("half")
        raise error

    return build_half


def make(*options: str, build: Build = build) -> int:
    sizes = {"counts": 3, "bytes_each": 10, "seconds": 7}
    figures: Any = {name: dict.fromkeys("SML", value) for name, value in sizes.items()}
    texts = {"name": "things", "usage": "Make things."}
    return DatasetScript(version=1, build=build, **texts, **figures).main(options)


@pytest.fixture(autouse=True)
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the default folder, inside an empty data folder of the course."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    return tmp_path / "things-M"


def said(capsys: Said) -> str:
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_data_with_other_settings_and_foreign_folders_are_kept(things: Path, capsys: Said) -> None:
    assert make() == 0
    assert capsys.readouterr().out == (
        "Creating things-M, 3 things: up to 30 B, about 7 s on an idle laptop.\n"
        f"{things}: 3 things, 0 MB, created in 0 s.\n"
    )
    for options in (["--seed", "2"], ["--size", "L"]):
        options += ["--out", str(things)]
        assert make(*options) == 1
        assert said(capsys).endswith("Delete it, or choose another folder with COURSE_DATA.")
        assert (things / "a.txt").read_text() == "M 1"
    assert make("--seed", "2", "--force") == 0
    assert (things / "a.txt").read_text() == "M 2"
    (things.parent / "mine").mkdir()
    (things.parent / "mine/thesis.tex").write_text("years of work")
    (things.parent / "empty").mkdir()
    assert make("--out", str(things.parent / "mine"), "--force") == 1
    assert "does not contain a complete things data set" in said(capsys)
    assert (things.parent / "mine/thesis.tex").exists()
    assert make("--out", str(things.parent / "empty")) == 0


def test_check_finds_changes_that_sizes_do_not_show(things: Path, capsys: Said) -> None:
    assert make() == make("--check") == 0
    (things / "b.txt").write_text("x")
    assert make() == 0
    assert make("--check") == 1
    assert "(b.txt)" in said(capsys)
    (things / "a.txt").write_text("")
    assert make() == 1  # a shorter file is noticed without --check
    assert "(a.txt, b.txt). Create them again with `python -m data_scripts.make_th" in said(capsys)
    (things / files.CHECKSUMS).unlink()
    assert make("--check") == 1
    assert files.CHECKSUMS in said(capsys)
    assert make("--check", "--size", "S") == 1
    assert "by omitting --check" in said(capsys)


def test_too_little_space_is_reported_before_creating_data(
    things: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    assert make() == 1
    assert "choose a smaller --size" in said(capsys)
    assert not things.exists()


def test_error_is_one_sentence_and_keeps_existing_data(tmp_path: Path, capsys: Said) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert make(build=failing(full)) == 1
    assert said(capsys).startswith("The disk is full. Free some space")
    assert make(build=failing(KeyboardInterrupt())) == 130
    with pytest.raises(ZeroDivisionError):  # bugs are not hidden
        make(build=failing(ZeroDivisionError()))
    assert [path.name for path in tmp_path.iterdir()] == [".things-M.lock"]
    assert make() == 0
    assert make("--force", build=failing(full)) == 1
    assert make("--check") == 0
