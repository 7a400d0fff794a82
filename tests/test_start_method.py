"""How workers start: one choice for the notebooks and for the page about the machine."""

import sys

import pytest

from course_utils.command import cli
from course_utils.errors import CourseError
from course_utils.hardware.machine import start_method


def test_fork_is_never_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COURSE_START_METHOD", raising=False)
    assert start_method() == ("spawn" if sys.platform == "win32" else "forkserver")
    monkeypatch.setenv("COURSE_START_METHOD", "")
    assert start_method() != "fork"


def test_it_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_START_METHOD", "spawn")
    assert start_method() == "spawn"


def test_a_wrong_choice_gets_the_same_sentence_from_the_doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COURSE_START_METHOD", "teleport")
    with pytest.raises(CourseError, match="by 'teleport' here; set COURSE_START_METHOD") as refused:
        start_method()
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == f"course: {refused.value}\n"
