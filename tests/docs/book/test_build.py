from pathlib import Path

import pytest

from docs.book import build


def test_a_refused_solution_fails_the_build_and_the_last_book_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "index.html"
    page.write_text("the last book")
    monkeypatch.setattr(build, "BUILT", tmp_path)
    monkeypatch.setattr(build, "DATA_SETS", ())
    monkeypatch.setattr(build, "run_changed", lambda _: iter(["00_x: rejected."]))
    assert build.main() == 1
    assert page.read_text() == "the last book"
    assert f"00_x: rejected.\n{tmp_path} was not changed." in capsys.readouterr().err
