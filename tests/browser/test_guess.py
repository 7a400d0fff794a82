"""A page of the book hides answers until the reader has guessed, and checks exercises."""

import json
import re
from collections.abc import Iterator
from html import unescape
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter
from playwright.sync_api import BrowserContext, Locator, Page, expect

from course_utils.errors import CourseError
from course_utils.paths import REPO
from course_utils.teaching.notebook import predict, reveal
from course_utils.teaching.notebook.prediction import Reveal, _read_guess
from docs.book.exercises import ELSEWHERE, with_form
from docs.book.in_kernel import load_ipython_extension
from notebooks.build import HERE

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STATIC = REPO / "docs/book/static"
PAGE = """<!doctype html><meta charset="utf-8"><style>[hidden] {{ display: none !important }}
{css}</style><article class="bd-article bd-content"><section><p>Before</p>
<div class="cell">{asked_a}</div><p>A story</p>
<div class="cell"><p>Code</p>{revealed_a}</div><p id="why">Why</p>
<section><h2>Next</h2><p>Text</p></section></section>
<section><h2>Two</h2><div class="cell">{asked_b}</div><div class="cell">{asked_c}</div><p>Both</p>
<div class="cell">{revealed_b}</div><div class="cell">{revealed_c}</div><p>End</p></section>
<h4>Exercises</h4>{exercises}</article><script>{script}</script><script>{checks}</script>"""
SOLVED = {
    found[1]: cell.source
    for path in (HERE / "solutions").glob("*.ipynb")
    for cell in nbformat.read(path, as_version=4).cells
    if (found := re.search(r'cu\.check\("([\d.]+)"', cell.source))
}
IN_PAGES = ["02.1", "02.4", "03.3", "03.4", "06.1", "09.1", "12.1", "14.2"]
CHOICES = ["2, in `C`", 'the "same"']


@pytest.fixture
def built(scratch: Path, tmp_path: Path) -> str:
    shell = SimpleNamespace(display_formatter=DisplayFormatter())
    load_ipython_extension(shell)
    things = {
        "asked_a": predict("00a", "How busy?", unit="%"),
        "asked_b": predict("00b", "Which?", choices=CHOICES),
        "asked_c": predict("00c", "How many?", unit="times"),
        "revealed_a": reveal("00a", 19.27),
        "revealed_b": reveal("00b", CHOICES[1]),
        "revealed_c": reveal("00c", 3),
    }
    show = shell.display_formatter.format
    parts = {name: show(thing)[0]["text/html"] for name, thing in things.items()}
    files = {"css": "book.css", "script": "guess.js", "checks": "exercise.js"}
    parts |= {name: (STATIC / file).read_text("utf-8") for name, file in files.items()}
    parts["exercises"] = "".join(with_form(key, SOLVED[key], "...") for key in ("02.1", "03.3"))
    path = tmp_path / "page.html"
    path.write_text(PAGE.format(**parts), "utf-8")
    return path.as_uri()


@pytest.fixture
def page(guarded_page, built: str) -> Iterator[Page]:
    guarded_page.page.goto(built)
    yield guarded_page.page
    assert guarded_page.js_errors == []


def texts(page: Page) -> list[str]:
    """Return the paragraphs of the page that can be seen, without those of questions."""
    shown = """all => all.filter(e => !e.closest(".asked") && e.checkVisibility()
        && getComputedStyle(e).contentVisibility != "hidden").map(e => e.textContent)"""
    return page.locator("article :is(p, h2)").evaluate_all(shown)


def ask(page: Page, key: str) -> Locator:
    return page.locator(f".asked[data-key='{key}']")


def test_what_follows_a_question_is_hidden_until_a_guess_that_is_a_number(page: Page) -> None:
    assert texts(page) == ["Before", "Next", "Text", "Two"]
    page.keyboard.press("Tab")
    for text, problem in (("", "Enter a"), ("abc", "'abc' is not"), ("101", "between 0 and 100")):
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        expect(ask(page, "00a").get_by_role("status")).to_contain_text(problem)
    assert texts(page) == ["Before", "Next", "Text", "Two"]
    ask(page, "00a").get_by_label("Your guess").fill("60 %")
    page.keyboard.press("Enter")
    expect(page.locator(":focus")).to_have_text("You predicted 60 %.")
    assert texts(page) == ["Before", "A story", "Code", "Why", "Next", "Text", "Two"]
    card = page.locator(".revealed[data-key='00a']")
    expect(card).to_contain_text("How busy?You predicted 60 %, and it is 19.3 %, 3.1 times less")
    bars = card.locator("span > span").evaluate_all("all => all.map(e => e.style.width)")
    assert bars == ["60%", "19.27%"]
    page.reload()
    expect(card).to_contain_text("You predicted 60 %")


def test_of_two_questions_in_a_row_both_are_answered_first(page: Page) -> None:
    ask(page, "00b").get_by_role("button", name="Compare").click()
    expect(ask(page, "00b").get_by_role("status")).to_have_text("Choose one of these.")
    ask(page, "00b").get_by_role("radiogroup", name="Which?").get_by_label("2, in C").check()
    ask(page, "00b").get_by_role("button", name="Compare").click()
    expect(ask(page, "00b")).to_contain_text("You predicted 2, in `C`. Answer the next question")
    assert texts(page)[-1] == "Two"
    ask(page, "00c").get_by_role("button", name="Show the answer").click()
    assert texts(page)[-3:] == ["Two", "Both", "End"]
    found = [page.locator(f".revealed[data-key='{key}']").inner_text() for key in ("00b", "00c")]
    assert found[0].endswith(Reveal("00b", "", *CHOICES, "").sentence)
    assert found[1] == "Measured: 3 times."


def test_a_link_opens_what_it_leads_to_and_print_and_pages_without_scripts_show_all(
    page: Page, built: str, chromium: BrowserContext
) -> None:
    everything = ["Before", "A story", "Code", "Why", "Next", "Text", "Two", "Both", "End"]
    page.emulate_media(media="print")
    assert texts(page) == everything
    page.emulate_media(media="screen")
    page.evaluate("location.hash = 'why'")
    expect(ask(page, "00a")).to_contain_text("You made no prediction.")
    assert texts(page) == everything[:7]
    plain = chromium.browser.new_context(java_script_enabled=False).new_page()
    plain.goto(built)
    for text in everything:
        expect(plain.get_by_text(text, exact=True)).to_be_visible()
    plain.context.close()


def test_a_guess_is_read_and_compared_as_in_the_notebook(page: Page) -> None:
    pairs = [(19.27, 19.27), (0.5, 123_456.7), (-3, 4), (1, 0.996), (3e-3, 41.0), (0, 2)]
    for guess, measured in [*pairs, *((other, one) for one, other in pairs)]:
        said = page.evaluate("pair => compared(...pair, 'times')", [guess, measured])
        assert said == Reveal("00a", "", guess, measured, "times").sentence
    typed = "40", " 40 %", "1,234.5", "0,5", ".5", "-1", "1e3", "inf", "0x1", "4 it/s", " "
    for unit, text in product(("%", "it/s", ""), typed):
        found = page.evaluate("given => readNumber(...given)", [text, unit])
        assert found["problem"] or found["guess"] == _read_guess(text, unit)
        if found["problem"]:
            with pytest.raises(CourseError, match=f"^{re.escape(found['problem'])}$"):
                _read_guess(text, unit)


def test_an_exercise_is_checked_in_the_page_as_in_the_notebook(page: Page) -> None:
    for events, days, said in (
        ("1e6", "1", "The plan was a million events"),
        ("abc", "1", "events_per_epoch = no number: This does not follow"),
        ("78_125 * 128", "100.72", "days_ten_epochs = 100.72: The bar shows one epoch"),
        ("1e7", "101.5", "days_ten_epochs = 101.5: The bar shows one epoch"),
        ("10,000,000", "1,007", "Right: exercise 2.1"),
    ):
        page.get_by_label("events_per_epoch").fill(events)
        page.get_by_label("days_ten_epochs").fill(days)
        page.get_by_label("slowdown_per_event").fill("10.1")
        page.keyboard.press("Enter")
        expect(page.locator("[data-exercise]").first.get_by_role("status")).to_contain_text(said)
    flaws = page.locator("[data-exercise]").last
    for label, letters, said in (
        ("a flaw", "abcdefgh", "You judged 4 of 8 statements right. One that you call a flaw"),
        ("not a flaw", "efgh", "Right: exercise 3.3"),
    ):
        for letter in letters:
            flaws.get_by_role("combobox", name=letter, exact=True).select_option(label)
        flaws.get_by_role("button").click()
        expect(flaws.get_by_role("status")).to_contain_text(said)


def test_exercises_with_numbers_or_labels_have_a_form_and_others_lead_to_the_notebook() -> None:
    forms = {key: with_form(key, code, "...") for key, code in SOLVED.items()}
    assert [key for key in sorted(forms) if ELSEWHERE not in forms[key]] == IN_PAGES
    for key in IN_PAGES:
        given = json.loads(unescape(re.search('data-exercise="(.*?)"', forms[key])[1]))
        assert "Right: exercise" in given["right"]
        for *name, cases in given["fields"]:  # a right case, and feedback for all others
            assert {"Not right yet" in says for _, says in cases} == {True, False}, name
