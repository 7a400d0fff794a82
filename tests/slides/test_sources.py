from pathlib import Path

import pytest

from notebooks.claims import Claim
from slides.build.__main__ import decks
from slides.build.markdown import read_deck
from slides.build.rich_text import SLIDES
from slides.build.sources import findings, read_all_claims, sources

CLAIM = Claim("words", "talk", "BERT read 3.3 billion words", "Devlin 2019", "figure")
DECK = """---
title: A talk
subtitle: Short
minutes: 1
---
# A talk

{}

Note:
**1 min.** It was 2018.
"""


def deck_that_says(folder: Path, text: str):
    path = folder / "talk.md"
    path.write_text(DECK.format(text), "utf-8")
    return read_deck(path)


@pytest.mark.parametrize(
    "text",
    [
        "BERT read 3.3 billion words, of which most are new.",
        "Choose 4 workers for 20 files.",
        "A step of 50 ms <!-- given --> and 3 GB.",
        "BERT read 3.3 billion words.\n\n:::source Devlin, arXiv:1810.04805",
        ":::timeline\nNaive: read_ms=2000 step_ms=30\n:::",
        "`sleep(2000)` and [a page](https://example.org/2019)",
    ],
)
def test_what_has_a_source_or_was_chosen_is_in_order(tmp_path: Path, text: str) -> None:
    deck = deck_that_says(tmp_path, text)
    assert "no source" not in " ".join(findings(deck, [CLAIM]))


@pytest.mark.parametrize(
    "number", ["40 %", "2019", "30 days", "1,024", "5 trillion", "€ 3", "12 GB/s"]
)
def test_a_number_without_a_source_is_found(tmp_path: Path, number: str) -> None:
    deck = deck_that_says(tmp_path, f"BERT read 3.3 billion words. It is {number} now.")
    found = list(findings(deck, [CLAIM]))
    assert len(found) == 1
    assert found[0].startswith("talk, slide 1 (A talk): ")
    assert "has no source" in found[0]


def test_a_claim_that_no_slide_makes_and_lost_minutes_are_found(tmp_path: Path) -> None:
    deck = deck_that_says(tmp_path, "Nothing.")
    text = " ".join(findings(deck, [CLAIM]))
    assert "claim words is on no slide" in text
    assert list(findings(deck, [])) == []


def test_the_sources_of_a_slide_are_those_of_what_it_says(tmp_path: Path) -> None:
    other = Claim("other", "another_talk", "BERT read", "elsewhere", "figure")
    notebook = Claim("12-words", "12", "3.3 billion words", "counted", "figure")
    slide = deck_that_says(tmp_path, "BERT read 3.3 billion words.").slides[0]
    assert sources(slide, "talk", [CLAIM, other, notebook]) == ["Devlin 2019", "counted"]


@pytest.mark.parametrize("name", decks())
def test_a_deck_takes_its_minutes_and_has_a_source_for_each_number(name: str) -> None:
    assert list(findings(read_deck(SLIDES / f"{name}.md"), read_all_claims())) == []
