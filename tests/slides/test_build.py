from pathlib import Path

import pytest

from slides.build.__main__ import decks, main
from slides.build.browser import browser, open_deck
from slides.build.check import measured
from slides.build.markdown import read_deck
from slides.build.page import page
from slides.build.rich_text import SLIDES
from tests.browser.lab_page import typefaces

pytestmark = [pytest.mark.full, pytest.mark.browser]
DECK = """---
title: A talk
subtitle: Short
minutes: 3
---
# A talk

Note:
**1 min.**

*Say:* Welcome.
---
## It can wait

:::timeline
Naive: read_ms=80 copy_ms=5 step_ms=30 steps=12
Workers: read_ms=80 copy_ms=5 step_ms=30 steps=12 num_workers=2
:::

Note:
**1 min.**

*Say:* Press 2, then turn the page.
---
## It continues

{}

Note:
**1 min.**

*Say:* Bye.
"""


@pytest.fixture(scope="module")
def window():
    with browser() as context:
        yield context


def built(folder: Path, text: str = "+ Good") -> Path:
    (folder / "talk.md").write_text(DECK.format(text), "utf-8")
    file = folder / "talk.html"
    file.write_text(page(read_deck(folder / "talk.md"), []), "utf-8")
    return file


def test_every_slide_is_legible_and_needs_no_network(capsys) -> None:
    status = main(["--no-pdf", "--check"])
    with browser() as window:
        for name in decks():
            file = SLIDES / "built" / f"{name}.html"
            slides, _ = open_deck(window, file, "?view=print", to_print=True)
            assert typefaces(slides, ".slides") == {"Inter"}
            assert "DejaVuSans" not in file.read_text("utf-8")  # a glyph of a figure
    assert capsys.readouterr().err == ""
    assert status == 0
    assert len(decks()) == 3


def test_digit_keys_select_a_state_of_the_timeline(window, tmp_path: Path) -> None:
    slides, asked = open_deck(window, built(tmp_path))
    for key, state in ("ArrowRight", "Naive"), ("2", "Workers"), ("ArrowLeft", "Naive"):
        slides.keyboard.press(key)
        assert slides.evaluate("Reveal.getIndices().h") == 1
        assert slides.locator(".tl").get_attribute("data-state") == f"show={state}"
        slides.get_by_role("radio", name=state).focus()
    slides.keyboard.press("PageDown")
    assert slides.evaluate("Reveal.getIndices().h") == 2
    assert asked == []


def test_check_finds_unreadable_text(window, tmp_path: Path) -> None:
    for text, message in (
        ("- all\n" * 12, "overflows the slide"),
        ("```python\n" + 80 * "x" + "\n```", "is wider than its box"),
        ("<small style='font-size: 20px'>small</small>", "has letters of 20 pixels"),
        ("<b style='color: #999'>pale</b>", "has a contrast of"),
        ("[lost](there.html)", "has no target"),
        ("<img src='data:,'>", "no alternative text"),
    ):
        first, *others = measured(window, built(tmp_path, text))
        assert message in first, text
        assert all(line.startswith("talk, slide 3, ") for line in (first, *others)), text
