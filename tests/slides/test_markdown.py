from pathlib import Path

import pytest

from slides.build.markdown import DeckError, read_deck, to_html
from slides.build.page import page
from slides.build.sources import findings

FRONT = "---\ntitle: A talk\nsubtitle: Short\nminutes: 3\n---\n"
TITLE = "# A talk\n\nNote:\n**1 min.**\n\n*Say:* Welcome.\n---\n"
NOTES = "**1.5 min, skip if late.**\n\n*Say:* It is new.\n\n*Ask:* Why?\n\n*Background:* A paper.\n"
SLIDE = "## One thought\n{}\n\nNote:\n" + NOTES


@pytest.fixture
def html(tmp_path: Path):
    def shown(text: str) -> str:
        return to_html(read(tmp_path, FRONT + TITLE + SLIDE.format(text)).slides[1], "talk")

    return shown


def read(folder: Path, text: str):
    path = folder / "talk.md"
    path.write_text(text, "utf-8")
    return read_deck(path)


def test_deck_has_slides_with_notes_and_minutes(tmp_path: Path) -> None:
    front = FRONT.replace("minutes: 3", "minutes: 3\nshort: 1")
    deck = read(tmp_path, front + TITLE + SLIDE.format("- a bullet"))
    assert (deck.title, deck.subtitle, deck.minutes, deck.short) == ("A talk", "Short", 3, 1)
    slides = [(slide.heading, slide.minutes, slide.skippable) for slide in deck.slides]
    assert slides == [("A talk", 1, False), ("One thought", 1.5, True)]
    assert deck.slides[1].notes == NOTES.rstrip()
    assert deck.slides[1].spoken.split() == ["*Say:*", "It", "is", "new.", "*Ask:*", "Why?"]


def test_backup_slide_follows_the_talk(tmp_path: Path) -> None:
    backup = SLIDE.format("").replace("skip if late", "backup")
    deck = read(tmp_path, FRONT.replace("minutes: 3", "minutes: 1") + TITLE + backup)
    assert [slide.backup for slide in deck.slides] == [False, True]
    assert '<section data-minutes="1.5" data-backup>' in page(deck, [])
    assert page(deck, []).count("data:font/woff2;base64,") == 3
    assert list(findings(deck, [])) == []  # its minutes do not count


def test_unreadable_block_is_reported_with_its_slide(html) -> None:
    for text, message in (
        (":::", "has no block to close"),
        (":::columns\nleft", "is not closed"),
        (":::column", "is outside of `:::columns`"),
        (":::picture x\n:::", "The block is unknown"),
        (":::guess fast-1\n:::", "needs a key such as fast-3, and a question"),
        (":::timeline\nFast: speed=3\n:::", "speed"),
        (":::bars MB/s\ntext: fast\n:::", "The block needs lines such as"),
        (":::figure curve\n:::", "The figure has no description"),
        ("## Another thought", "needs one"),
    ):
        with pytest.raises(DeckError, match=rf"talk, slide 2.*{message}"):
            html(text)


def test_incomplete_deck_is_refused(tmp_path: Path) -> None:
    for text, message in (
        ("# A talk\n", "must begin with a line `---`"),
        ("---\ntitle: A talk\n---\n", "lacks minutes, subtitle"),
        (FRONT + "# A talk\n\nNote:\nWelcome.", "the notes must begin with"),
        (FRONT + TITLE + SLIDE.format("").replace("Ask", "Why"), "in this order"),
        (FRONT + TITLE + SLIDE.format("").replace("*Say:*", ""), "in this order"),
    ):
        with pytest.raises(DeckError, match=message):
            read(tmp_path, text)
