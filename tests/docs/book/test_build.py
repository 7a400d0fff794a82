from pathlib import Path

import pytest

from docs.book import build
from docs.book.build import lay_out


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


def test_files_are_laid_out_what_is_gone_goes_and_what_stays_keeps_its_time(tmp_path: Path) -> None:
    lay_out({"one.md": "1", "in/two.md": "2"}, tmp_path)
    before = (tmp_path / "one.md").stat().st_mtime_ns
    lay_out({"one.md": "1", "in/three.md": "3"}, tmp_path)
    assert (tmp_path / "one.md").stat().st_mtime_ns == before
    assert [path.name for path in sorted((tmp_path / "in").iterdir())] == ["three.md"]
