from pathlib import Path

import pytest

from slides.build.markdown import DeckError, read_deck, to_html

FRONT = "---\ntitle: A talk\nsubtitle: Short\nminutes: 3\n---\n"
TITLE = "# A talk\n\nNote:\n**1 min.** Welcome.\n---\n"
SLIDE = "## One thought\n{}\n\nNote:\n**1.5 min.** Say it.\n"


@pytest.fixture
def html(tmp_path: Path):
    """A function that returns the HTML of a slide with some Markdown on it."""

    def shown(text: str) -> str:
        return to_html(read(tmp_path, FRONT + TITLE + SLIDE.format(text)).slides[1], "talk")

    return shown


def read(folder: Path, text: str):
    path = folder / "talk.md"
    path.write_text(text, "utf-8")
    return read_deck(path)


def test_a_deck_has_slides_with_notes_and_minutes(tmp_path: Path) -> None:
    deck = read(tmp_path, FRONT + TITLE + SLIDE.format("- a bullet"))
    assert (deck.title, deck.subtitle, deck.minutes) == ("A talk", "Short", 3)
    assert [(slide.heading, slide.minutes) for slide in deck.slides] == [
        ("A talk", 1),
        ("One thought", 1.5),
    ]
    assert deck.slides[1].notes == "**1.5 min.** Say it."


def test_plus_appears_one_by_one_and_a_comment_is_not_shown(html) -> None:
    shown = html("- at once <!-- given -->\n\n+ later")
    assert "<li>at once</li>" in shown
    assert '<li class="fragment">later</li>' in shown


def test_code_is_stepped_through_and_means_nothing_to_the_deck(html) -> None:
    shown = html("```python {1|3-4}\n# One\n---\n:::\nx = 1\n```")
    assert 'data-steps="1|3-4"' in shown
    assert shown.count('<span class="line">') == 4
    assert shown.count('class="fragment step"') == 1


def test_a_formula_is_drawn_with_its_text_as_a_name(html) -> None:
    shown = html(r"The epoch takes $\max(C, L/W)$.")
    assert r'<svg class="formula" role="img" aria-label="\max(C, L/W)"' in shown


def test_columns_hold_blocks(html) -> None:
    shown = html(":::columns\nleft\n:::column\n:::demo wait\n:::\n\n:::source Some, 2026")
    left, right = shown.split('<div class="columns">')[1].split("</div><div>")[:2]
    assert "left" in left
    assert "course demo wait" in right
    assert '<div class="source"><p>Some, 2026</p>' in shown


def test_a_timeline_has_a_state_for_each_line(html) -> None:
    states = "Naive: read_ms=8 step_ms=5\nWorkers: read_ms=8 step_ms=5 num_workers=2 pinned=True"
    shown = html(f":::timeline\n{states}\n:::")
    assert '"state": {"show": "Naive"}' in shown
    assert "mountAll" not in shown  # the page starts all timelines at once


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (":::", "closes no block"),
        (":::columns\nleft", "is not closed"),
        (":::column", "stands outside of columns"),
        (":::picture x\n:::", "there are the blocks figure"),
        (":::timeline\nFast: speed=3\n:::", "speed"),
        (":::figure curve\n:::", "say in a line what the picture shows"),
        ("## Another thought", "it needs one"),
    ],
)
def test_what_is_not_understood_is_said_with_the_slide(html, text: str, told: str) -> None:
    with pytest.raises(DeckError, match=rf"talk, slide 2.*{told}"):
        html(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# A talk\n", "has to begin with a line `---`"),
        ("---\ntitle: A talk\n---\n", "lacks minutes, subtitle"),
        (FRONT + "# A talk\n\nNote:\nWelcome.", "the notes have to begin with"),
    ],
)
def test_a_deck_without_its_frame_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DeckError, match=told):
        read(tmp_path, text)
