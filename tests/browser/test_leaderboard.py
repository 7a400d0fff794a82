"""The leaderboard page, in light and dark: new results appear, and names are never HTML."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from course_utils.stories.leaderboard import post
from tests.browser.lab_page import SHOTS, GuardedPage
from tests.stories.leaderboard.helpers import GOOD
from tests.stories.wall.helpers import running_wall

pytestmark = pytest.mark.browser


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with running_wall(tmp_path) as wall:
        yield wall.wall.replace("/?", "/board?")


@pytest.fixture
def guarded(chromium: BrowserContext, url: str) -> Iterator[GuardedPage]:
    page = GuardedPage(chromium, allowed=url.rpartition("/")[0])
    page.page.goto(url)
    yield page
    page.close()


def test_page_updates_and_shows_names_as_text(guarded: GuardedPage, url: str) -> None:
    page = guarded.page
    expect(page.get_by_role("status")).to_have_text("The board is still empty.")
    expect(page.locator("#how")).to_contain_text(f'best(seed_of(script)), "{url}"')
    names = [
        "<img src=x onerror=alert(1)>",
        "Marie Curie",
        "李政道",
        "q" + "\u0301" * 20,
        "W" * 30,
    ]
    for number, name in enumerate(names):
        au = 0.97 - 0.13 * number
        result = replace(GOOD, au=au, points=100 - 9 * number, start_up_s=0.4 * number)
        post(name, result, url)
    post("Teacher", replace(GOOD, seed=7), url)
    expect(page.get_by_role("status")).to_have_text("6 names, 2 with an AU of 90 % or more (✓).")
    usual, seventh = page.get_by_role("table").all()
    assert usual.locator("tbody tr td:nth-child(2)").all_inner_texts() == names
    expect(usual.locator("tbody tr").first).to_contain_text("97.0 % ✓")
    expect(seventh).to_contain_text("Faults of seed 7")
    SHOTS.mkdir(exist_ok=True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=SHOTS / f"leaderboard-{scheme}.png", full_page=True)
    post("Marie Curie", replace(GOOD, points=100, au=0.99), url)
    first = usual.locator("tbody tr").first
    expect(first.locator("td").nth(1)).to_have_text("Marie Curie")
    expect(first).to_have_class("new")
    page.set_viewport_size({"width": 400, "height": 800})
    page.screenshot(path=SHOTS / "leaderboard-narrow.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator("img").count() == 0
    assert guarded.external == []
    assert guarded.js_errors == []


def test_page_reports_stopped_board_and_recovers(chromium: BrowserContext, tmp_path: Path) -> None:
    with running_wall(tmp_path) as wall:
        url = wall.wall.replace("/?", "/board?")
        post("Marie", GOOD, url)
        guarded = GuardedPage(chromium, allowed="http://127.0.0.1")
        guarded.page.goto(url)
        status = guarded.page.get_by_role("status")
        expect(status).to_have_text("1 name, 1 with an AU of 90 % or more (✓).")
    expect(status).to_have_text("The server does not answer. This page keeps trying.")
    expect(guarded.page.get_by_role("cell", name="Marie")).to_be_visible()
    with running_wall(tmp_path, "--port", url.rpartition(":")[2].partition("/")[0]):
        expect(status).to_have_text("1 name, 1 with an AU of 90 % or more (✓).")
    guarded.close()
