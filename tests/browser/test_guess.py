"""A page of the book hides an answer until the reader has guessed, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from course_utils.paths import REPO

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = """<!doctype html><meta charset="utf-8"><article>
<section><p id="before">Before</p>
<div class="cell"><div class="asked" data-key="00a">How busy?<details>19 %</details></div></div>
<p id="story">A story</p></section>
<section id="next"><h2>Next</h2><p id="more">More</p>
<div class="cell"><div class="revealed" data-key="00a">Measured: 19 %.</div></div>
<p id="after">After</p></section>
<div class="cell"><div class="asked" data-key="00z">Never told<details>?</details></div></div>
</article><script>{script}</script>"""
HIDDEN = "#story, #more, #next h2, .revealed"


@pytest.fixture
def page(guarded_page, tmp_path: Path) -> Iterator[Page]:
    script = (REPO / "docs/book/static/guess.js").read_text("utf-8")
    path = tmp_path / "page.html"
    path.write_text(PAGE.replace("{script}", script), "utf-8")
    guarded_page.page.goto(path.as_uri())
    yield guarded_page.page
    assert guarded_page.js_errors == []


def test_text_after_question_is_hidden_until_guess(page: Page) -> None:
    for part in page.locator(HIDDEN).all():
        expect(part).to_be_hidden()
    for shown in ("#before", "#after"):
        expect(page.locator(shown)).to_be_visible()
    unmeasured = page.locator("[data-key='00z'] details")
    expect(unmeasured).to_have_count(1)
    page.get_by_label("Your guess").fill("60 %")
    page.get_by_role("button", name="Show the measurement").click()
    for part in page.locator(HIDDEN).all():
        expect(part).to_be_visible()
    expect(page.locator(".revealed")).to_have_text("You predicted 60 %.Measured: 19 %.")


def test_guess_is_remembered_and_links_reveal_the_answer(page: Page) -> None:
    page.goto(f"{page.url}#more")
    page.reload()
    expect(page.locator("#more")).to_be_visible()
    page.goto(page.url.partition("#")[0])
    expect(page.locator("#more")).to_be_hidden()
    page.get_by_role("button", name="Show the measurement").click()
    page.reload()
    expect(page.locator("#more")).to_be_visible()
