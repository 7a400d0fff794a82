from __future__ import annotations

import sys

import pytest

import course_utils
from keepfed import command
from keepfed.errors import KeepfedError


def test_a_package_that_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "keepfed.field_guide", None)
    with pytest.raises(ModuleNotFoundError):  # our own module: no installation brings it
        command.main(["why", "text"])
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.delitem(sys.modules, "keepfed.field_guide")
    assert command.main(["why", "text"]) == 1
    said = capsys.readouterr().err
    assert said == 'keepfed: The package tomllib is not installed: run pip install "keepfed".\n'


def test_a_name_of_the_course_says_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(course_utils), "explorer", raising=False)
    monkeypatch.delitem(sys.modules, "course_utils.teaching.explorer", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(KeepfedError, match=r'numpy is not installed.*"keepfed\[course\]"'):
        course_utils.explorer  # noqa: B018


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command.main(["--version"])
    assert capsys.readouterr().out.strip() == course_utils.__version__
