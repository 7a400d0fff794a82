"""Errors while creating data: one sentence with the next step."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_scripts import files
from data_scripts.command import Build, DatasetScript, run

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
    three, ten, seven = (dict.fromkeys("SML", number) for number in (3, 10, 7))
    script = DatasetScript("things", 1, three, ten, seven, build)
    return run(script, options, usage="Make things.")


@pytest.fixture(autouse=True)
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the default folder, inside an empty data folder of the course."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    return tmp_path / "things-M"


@pytest.fixture
def made(things: Path, capsys: Said) -> Path:
    assert make() == 0
    assert capsys.readouterr().out == (
        "Creating things-M, 3 things: up to 30 B, about 7 s on an idle laptop.\n"
        f"{things}: 3 things, 0 MB, created in 0 s.\n"
    )
    return things


def said(capsys: Said) -> str:
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize("options", [["--seed", "2"], ["--size", "L"]])
def test_data_with_other_settings_are_kept_without_force(
    made: Path, options: list[str], capsys: Said
) -> None:
    options = [*options, "--out", str(made)]
    assert make(*options) == 1
    assert said(capsys).endswith("Delete it, or choose another folder with COURSE_DATA.")
    assert (made / "a.txt").read_text() == "M 1"

    assert make(*options, "--force") == 0
    assert (made / "a.txt").read_text() != "M 1"


def test_foreign_folder_is_kept_and_empty_folder_is_filled(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    (tmp_path / "empty").mkdir()

    assert make("--out", str(tmp_path / "mine"), "--force") == 1
    assert "does not contain a complete things data set" in said(capsys)
    assert (tmp_path / "mine/thesis.tex").exists()
    assert make("--out", str(tmp_path / "empty")) == 0


def test_check_finds_changes_that_sizes_do_not_show(made: Path, capsys: Said) -> None:
    assert make("--check") == 0
    (made / "b.txt").write_text("x")
    assert make() == 0
    assert make("--check") == 1
    assert "(b.txt)" in said(capsys)
    (made / "a.txt").write_text("")
    assert make() == 1  # a shorter file is noticed without --check
    assert "(a.txt, b.txt). Create them again with `python -m data_scripts.make_th" in said(capsys)

    (made / files.CHECKSUMS).unlink()
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


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full. Free some space"),
        (PermissionError(errno.EACCES, "denied", "/x/y"), "Writing to /x/y is not allowed. To fix"),
        (NotADirectoryError(errno.ENOTDIR, "no", "/x/y"), "/x/y is a file, not a folder. To fix"),
    ],
)
def test_error_is_one_sentence_and_keeps_existing_data(
    error: OSError, sentence: str, tmp_path: Path, capsys: Said
) -> None:
    assert make(build=failing(error)) == 1
    assert said(capsys).startswith(sentence)
    assert [path.name for path in tmp_path.iterdir()] == [".things-M.lock"]
    assert make() == 0
    assert make("--force", build=failing(error)) == 1
    assert make("--check") == 0


def test_interrupt_cleans_up_and_bugs_are_not_hidden(tmp_path: Path) -> None:
    assert make(build=failing(KeyboardInterrupt())) == 130
    assert [path.name for path in tmp_path.iterdir()] == [".things-M.lock"]
    with pytest.raises(ZeroDivisionError):
        make(build=failing(ZeroDivisionError()))
