import tomllib
from pathlib import Path

import pytest

from docs import plain_english
from docs.plain_english import PATTERNS, Block, find

EXAMPLES = tomllib.loads(Path(__file__).with_name("plain_english.toml").read_text("utf-8"))


def names(kind: str, text: str) -> list[str]:
    return [hit.pattern.name for hit in find([Block(kind, [(1, text)])])[1]]


def test_every_pattern_has_an_example() -> None:
    assert list(EXAMPLES) == [pattern.name for pattern in PATTERNS]


def test_checker_finds_phrase_and_accepts_plain_sentence() -> None:
    for name in EXAMPLES:
        example = EXAMPLES[name]
        kind = example.get("kind", "text")
        assert name in names(kind, example["found"]), name
        assert names(kind, example["plain"]) == [], name


def test_strict_fails_above_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plain_english, "REPO", tmp_path)
    (tmp_path / "README.md").write_text("Whoever reads this.\n", "utf-8")
    assert plain_english.main([]) == 0
    assert plain_english.main(["--strict"]) == 1
    assert "Too many hits in docs." in capsys.readouterr().out
    (tmp_path / "README.md").write_text("If you read this.\n", "utf-8")
    assert plain_english.main(["--strict"]) == 0
