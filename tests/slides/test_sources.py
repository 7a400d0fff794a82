from pathlib import Path

from notebooks.claims import Claim
from slides.build.__main__ import decks
from slides.build.markdown import read_deck
from slides.build.rich_text import SLIDES
from slides.build.sources import findings, read_all_claims

CLAIM = Claim("words", "talk", "BERT read 3.3 billion words", "Devlin 2019", "figure")
DECK = """---
title: A talk
subtitle: Short
minutes: 1
---
# A talk

{}

Note:
**1 min.**

*Say:* {}
"""


def deck_with(folder: Path, text: str, notes: str = "Hello."):
    path = folder / "talk.md"
    path.write_text(DECK.format(text, notes), "utf-8")
    return read_deck(path)


def test_sourced_or_given_numbers_pass(tmp_path: Path) -> None:
    for text in (
        "BERT read 3.3 billion words, of which most are new.",
        "Choose 4 workers for 20 files.",
        "A step of 50 ms <!-- given --> and 3 GB.",
        "BERT read 3.3 billion words.\n\n:::source Devlin, arXiv:1810.04805",
        ":::timeline\nNaive: read_ms=2000 step_ms=30\n:::",
        "`sleep(2000)` and [a page](https://example.org/2019)",
    ):
        deck = deck_with(tmp_path, text)
        assert "no source" not in " ".join(findings(deck, [CLAIM])), text


def test_number_without_source_is_found(tmp_path: Path) -> None:
    for number in ("40 %", "2019", "30 days", "1,024", "5 trillion", "€ 3", "12 GB/s"):
        sentences = "BERT read 3.3 billion words.", f"It is {number} now."
        for shown, spoken in (" ".join(sentences), ""), sentences:
            found = list(findings(deck_with(tmp_path, shown, f"So. {spoken}"), [CLAIM]))
            assert len(found) == 1, number
            assert found[0].startswith("talk, slide 1 (A talk): "), number
            assert "has no source" in found[0], number


def test_long_slides_and_notes_are_found(tmp_path: Path) -> None:
    for text, notes, message in (
        ("word " * 29, "So.", "has 31 words"),
        ("word " * 28 + "`code` 300 <!-- given -->", "So.", ""),
        ("", "word " * 170, "takes 1.3 min aloud"),
        ("", "So.\n\n*Background:* " + "word " * 170, ""),
    ):
        found = " ".join(findings(deck_with(tmp_path, text, notes), []))
        assert message in found, text
        assert bool(message) == bool(found), text


def test_deck_has_no_findings() -> None:
    for name in decks():
        assert list(findings(read_deck(SLIDES / f"{name}.md"), read_all_claims())) == [], name
