from pathlib import Path

from docs.book.build import lay_out


def test_files_are_laid_out_what_is_gone_goes_and_what_stays_keeps_its_time(tmp_path: Path) -> None:
    lay_out({"one.md": "1", "in/two.md": "2"}, tmp_path)
    before = (tmp_path / "one.md").stat().st_mtime_ns
    lay_out({"one.md": "1", "in/three.md": "3"}, tmp_path)
    assert (tmp_path / "one.md").stat().st_mtime_ns == before
    assert [path.name for path in sorted((tmp_path / "in").iterdir())] == ["three.md"]
