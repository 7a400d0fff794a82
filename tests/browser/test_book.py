"""The complete book in a real browser, opened from files, as on a phone."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from course_utils.paths import REPO
from docs.book.build import BUILT
from keepfed.field_guide import look_up
from notebooks.build import HERE, sources
from tests.browser.lab_page import typefaces

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.slow]

MB = 1e6
# by how many pixels the page and its code are wider than a phone
_WIDTHS = """[document.scrollingElement, ...document.querySelectorAll(".bd-article pre")].map(
    block => block.scrollWidth - block.clientWidth)"""
SOURCE = HERE / "source"
MESSAGES = (REPO / "keepfed/tests/field_guide_messages.toml").read_text("utf-8")


@pytest.fixture(scope="module")
def book() -> Path:
    subprocess.run([sys.executable, "-m", "docs.book.build"], cwd=REPO, check=True)
    return BUILT


@pytest.fixture
def page(guarded_page) -> Page:
    yield guarded_page.page
    assert guarded_page.trouble() == []


def test_book_is_small_and_all_pages_fit_a_phone(book: Path, page: Page) -> None:
    assert sum(path.stat().st_size for path in book.rglob("*") if path.is_file()) < 25 * MB
    page.set_viewport_size({"width": 390, "height": 844})
    wide, bare = {}, []
    for path in sorted([*book.glob("*.html"), *book.glob("field_guide/*.html")]):
        page.goto(path.as_uri())
        widths = page.evaluate(_WIDTHS)
        if max(widths) > 0:
            wide[path.name] = widths
        if path.name != "explorer.html":
            assert typefaces(page, "main") <= {"Inter"}, path.name
        bare += [path.name] * (page.get_by_text("CC BY 4.0").count() == 0)
    assert wide == {}
    assert bare == ["explorer.html"]


def test_search_finds_error_message(book: Path, page: Page) -> None:
    page.goto(f"{(book / 'search.html').as_uri()}?q=Bus+error")
    expect(page.locator("#search-results li a").filter(has_text="/dev/shm is full")).to_be_visible()


def test_look_up_in_browser_matches_python(book: Path, page: Page) -> None:
    page.goto((book / "field_guide/index.html").as_uri())
    expect(page.locator(".look-up li a").first).to_have_text("/dev/shm is full")
    expect(page.locator(".look-up li code").first).to_have_text("df -h /dev/shm")
    posted = [one["says"] for one in tomllib.loads(MESSAGES)["posted"]]
    texts = [*posted, "shared memory", "why does it hang", "?"]
    found = page.evaluate("texts => texts.map(text => lookUp(text).map(e => e.name))", texts)
    assert found == [[entry.name for entry in look_up(text)] for text in texts]


@pytest.mark.parametrize("name", ["00_start_here", "index", "explorer"])
def test_explorer_works_without_python(book: Path, page: Page, name: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto((book / f"{name}.html").as_uri())
    explorer = page.locator(".tl").filter(has_text="Strategy").first
    stage = explorer.locator(".stage").bounding_box()
    assert stage
    assert stage["y"] + stage["height"] <= 800
    explorer.get_by_role("radio", name="naive", exact=True).check()
    expect(explorer).to_have_attribute("data-state", re.compile("strategy=naive"))
    slow = explorer.get_attribute("data-util")
    explorer.get_by_role("radio", name="CUDA prefetch").check()
    expect(explorer).not_to_have_attribute("data-util", slow)


# the first text after each question that can be seen, and the element around it
FOLLOWS = """() => [...document.querySelectorAll(".asked")].map(question => {
  const texts = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
  const skipped = e => e && (getComputedStyle(e).contentVisibility == "hidden"
    || skipped(e.parentElement));
  const isSeen = e => e.checkVisibility() && !skipped(e);
  const isAfter = text => question.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING
    && !question.contains(text) && text.data.trim() && isSeen(text.parentElement);
  while (texts.nextNode() && !isAfter(texts.currentNode));
  const next = texts.currentNode.parentElement;
  const ends = next.closest("h1, h2, h3, h4, .cell:has(.asked), footer");
  const isHidden = (ends && question.querySelector("form")) || !isAfter(texts.currentNode);
  return isHidden ? "" : `${question.dataset.key}: ${next.textContent}`;
})"""


def test_no_text_is_seen_between_a_question_and_the_next_heading(book: Path, page: Page) -> None:
    asked, leaks = 0, []
    for path in book.glob("*.html"):
        page.goto(path.as_uri())
        found = page.evaluate(FOLLOWS)
        asked += len(found)
        leaks += filter(None, found)
    assert leaks == []
    assert asked == sum(path.read_text("utf-8").count("cu.predict(") for path in sources(SOURCE))


def test_pages_do_not_speak_of_running_cells_or_of_making_data(book: Path) -> None:
    said = re.compile(r".{0,60}(?:[Rr]un (?:the|this) cells?\b|, created in \d)")
    pages = {path.name: path.read_text("utf-8") for path in book.glob("[0-9B]*.html")}
    assert {name: said.findall(text) for name, text in pages.items() if said.search(text)} == {}
