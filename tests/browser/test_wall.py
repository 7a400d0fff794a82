"""The wall's pages with 60 seats: what fits, what the keys do, and what the desk steers."""

from collections.abc import Iterator
from pathlib import Path

import cv2
import nbformat
import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from slides.build.markdown import read_deck
from slides.build.page import page as deck_page
from tests.browser.lab_page import SHOTS, GuardedPage, LabPage
from tests.stories.wall.helpers import RunningWall, running_wall
from tests.teaching.wall.helpers import until

pytestmark = pytest.mark.browser

PROJECTOR, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
SIZES = """() => [...document.body.querySelectorAll("*")]
  .filter((one) => one.checkVisibility())
  .filter((one) => [...one.childNodes].some((part) => part.nodeType === 3 && part.data.trim()))
  .map((one) => parseFloat(getComputedStyle(one).fontSize))"""
DECK = """---
title: A talk
subtitle: Short
minutes: 2
---
# A talk

Note:
**1 min.**

*Say:* Welcome.
---
## A question

:::guess 02b
How many times longer is a step?
unit: times
:::

The answer.

Note:
**1 min.**

*Say:* Guess.
"""


@pytest.fixture
def wall(tmp_path: Path) -> Iterator[RunningWall]:
    with running_wall(tmp_path) as wall:
        for number in range(60):
            seat = "seat" + "abcdefghjk"[number // 10] + "abcdefghjk"[number % 10]
            wall.post(seat=seat, kind="at", notebook="02")
            for key in ("02b", "02a") if number < 20 else ("02a",):
                wall.post(seat=seat, kind="guess", key=key, value=1 + 1.6 * number)
                wall.post(seat=seat, kind="measured", key=key, value=17 + number % 5)
        place = "nb02/ex4_count_the_cost:1"
        wall.post(
            seat="seataa", kind="verdict", exercise="02.4", status="wrong", misconception=place
        )
        wall.post(seat="seataa", kind="hand", up=True)
        yield wall


@pytest.fixture
def guarded(chromium: BrowserContext, wall: RunningWall) -> Iterator[GuardedPage]:
    SHOTS.mkdir(exist_ok=True)
    page = GuardedPage(chromium, allowed=wall.wall.partition("?")[0])
    yield page
    assert (page.external, page.js_errors) == ([], [])
    page.close()


def fits(page: Page) -> bool:
    box = page.evaluate("[document.body.scrollWidth, document.body.scrollHeight]")
    size = page.viewport_size or PROJECTOR
    return bool(box[0] <= size["width"] and box[1] <= size["height"])


def read_code(picture: bytes) -> str:
    image = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_GRAYSCALE)
    wide = np.pad(image, 64, constant_values=255)  # OpenCV needs a margin for some codes
    return str(cv2.QRCodeDetector().detectAndDecode(wide)[0])


def shoot(page: Page, name: str) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=SHOTS / f"wall-{name}-{scheme}.png")


def test_wall_fits_and_is_readable_from_the_last_row(
    guarded: GuardedPage, wall: RunningWall
) -> None:
    page = guarded.page
    page.set_viewport_size(PROJECTOR)
    page.goto(wall.wall)
    status = page.get_by_role("status")
    expect(status).to_contain_text("of 60 have guessed")
    assert page.locator("circle.dot").count() > 20
    assert page.locator(".mark").count() == 0
    code = page.get_by_role("img", name="QR code for phones")
    assert code.bounding_box()["width"] >= 256
    assert page.locator("#picture").bounding_box()["width"] > 900
    assert read_code(code.screenshot()) == wall.phone
    shoot(page, "guesses")
    page.keyboard.press("r")
    expect(page.locator(".median")).to_have_count(1)
    expect(page.locator("#sentence")).to_contain_text("Measured: ")
    shoot(page, "uncovered")
    assert fits(page)
    assert min(page.evaluate(SIZES)) >= 28
    page.keyboard.press("p")
    expect(page.locator("h1")).to_have_text("Where we are")
    assert fits(page)
    assert min(page.evaluate(SIZES)) >= 28
    shoot(page, "pace")
    page.keyboard.press("ArrowRight")
    expect(status).to_contain_text("have guessed")
    wall.post(seat="aaaa", kind="guess", key="02f", value=wall.picture("?key=02f")["choices"][0])
    assert wall.steer(key="02f") == 204  # the desk overrules the keys of a page
    expect(page.locator(".row")).to_have_count(len(wall.picture("?key=02f")["choices"]))
    shoot(page, "choices")
    page.set_viewport_size(PHONE)
    wall.steer(key="02a", uncover=True)
    expect(page.locator(".median")).to_have_count(1)
    shoot(page, "narrow")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_desk_and_phone_follow_each_other(
    guarded: GuardedPage, chromium: BrowserContext, wall: RunningWall
) -> None:
    phone = guarded.page
    desk = chromium.new_page()
    for page in (phone, desk):
        page.set_viewport_size(PHONE)
    desk.goto(wall.desk)
    desk.get_by_label("Question").select_option("02f")
    phone.goto(wall.phone)
    choice = wall.picture("?key=02f")["choices"][0]
    phone.get_by_role("button", name=choice).click()
    expect(phone.get_by_role("status")).to_contain_text(f"Saved: {choice}")
    expect(desk.get_by_role("status")).to_contain_text("1 of 61 have guessed")
    desk.get_by_label("Question").select_option("02a")
    expect(phone.locator("h1")).to_contain_text("page cache")
    for text, said in (("about", "Enter a number"), ("40,5", "Saved: 40.5 %")):
        phone.get_by_label("Your guess").fill(text)
        phone.get_by_role("button", name="Send").click()
        expect(phone.get_by_role("status")).to_contain_text(said)
    phone.screenshot(path=SHOTS / "wall-phone.png")
    desk.get_by_text("Enter the measured value").click()
    desk.get_by_label("Measured value").fill("19")
    desk.get_by_role("button", name="Send").click()
    expect(desk.get_by_role("status")).to_contain_text("Measured: 19 %")
    expect(desk.get_by_role("button", name="Cover")).to_be_visible()
    assert 0.19 in wall.picture()["marks"]
    assert wall.picture()["uncovered"]
    desk.get_by_role("button", name="Next question").click()
    expect(phone.locator("h1")).to_contain_text("How many times longer")
    expect(desk.get_by_role("heading", name="Hands")).to_be_visible()
    desk.screenshot(path=SHOTS / "wall-desk.png", full_page=True)
    for page in (phone, desk):
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    desk.close()


def test_slide_shows_the_wall_and_gives_phones_its_question(
    chromium: BrowserContext, wall: RunningWall, tmp_path: Path
) -> None:
    source = tmp_path / "talk.md"
    source.write_text(DECK, "utf-8")
    html = tmp_path / "talk.html"
    html.write_text(deck_page(read_deck(source), []), "utf-8")
    page = chromium.new_page()
    page.set_viewport_size(PROJECTOR)
    page.goto(html.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".guess p")).to_be_visible()
    expect(page.get_by_role("heading", name="A question")).to_be_hidden()
    expect(page.get_by_text("The answer.")).to_be_hidden()
    assert page.locator("iframe").count() == 0
    page.on("dialog", lambda dialog: dialog.accept(wall.desk))
    page.keyboard.press("w")
    frame = page.frame_locator(".guess iframe")
    expect(frame.get_by_role("status")).to_contain_text("of 60 have guessed (times")
    expect(frame.locator("h1")).to_be_hidden()
    assert wall.picture()["key"] == "02b"  # so that phones show it
    page.keyboard.press("r")
    expect(frame.locator(".median")).to_have_count(1)
    page.screenshot(path=SHOTS / "wall-slide.png")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("The answer.")).to_be_visible()
    expect(page.locator(".guess")).to_be_hidden()
    page.close()


BEGIN = """
import os
os.environ |= {settings}
import course_utils as cu
from course_utils.teaching.notebook import start
start.data_path = lambda name: None
cu.ready("02")
"""


def test_learner_guesses_and_asks_for_help_in_jupyterlab(
    lab_page: LabPage, lab_root: Path, tmp_path: Path
) -> None:
    question = 'cu.predict("02a", "What share?", unit="%")'
    with running_wall(tmp_path / "teacher") as wall:
        settings = {"COURSE_HOME": str(tmp_path / "learner"), "COURSE_WALL": wall.wall}
        cells = [BEGIN.format(settings=settings), question]
        new = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbformat.write(new, lab_root / "work" / "wall.ipynb")
        lab_page.open("work/wall.ipynb")
        lab_page.run_all()
        assert f"Joined {wall.wall.partition('/?')[0]} as seat " in lab_page.texts()[0]
        field = lab_page.page.get_by_placeholder("your guess")
        field.fill("40")
        field.press("Enter")
        lab_page.page.get_by_role("button", name="I am stuck").click()
        expect(lab_page.page.get_by_role("button", name="I can continue")).to_be_visible()
        lab_page.page.screenshot(path=SHOTS / "wall-joined.png")
        until(lambda: wall.picture().get("guessed") == 1)
        until(lambda: [hand[1] for hand in wall.trouble()["hands"]] == ["02"])
        assert lab_page.errors() == []
