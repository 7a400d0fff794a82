"""The wall's pages with 60 seats: what fits, and what keys, teacher and phones do."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.lab_page import GuardedPage
from tests.stories.wall.helpers import GOOD, RunningWall, running_wall, seat

pytestmark = pytest.mark.browser

PROJECTOR, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
SIZES = """() => [...document.body.querySelectorAll("*")]
  .filter((one) => one.checkVisibility())
  .filter((one) => [...one.childNodes].some((part) => part.nodeType === 3 && part.data.trim()))
  .map((one) => parseFloat(getComputedStyle(one).fontSize))"""


@pytest.fixture
def wall(tmp_path: Path) -> Iterator[RunningWall]:
    with running_wall(tmp_path) as wall:
        for number in range(60):
            wall.post("at", "", "02", seat(number))
            for key in ("02b", "02a") if number < 20 else ("02a",):
                wall.post("guess", key, 1 + 1.6 * number, seat(number))
                wall.post("measured", key, 17 + number % 5, seat(number))
        wall.post("verdict", "02.4", {"status": "wrong", "slip": "The bill"}, seat(0))
        wall.post("hand", "", True, seat(0))
        yield wall


@pytest.fixture
def guarded(chromium: BrowserContext, wall: RunningWall) -> Iterator[GuardedPage]:
    page = GuardedPage(chromium, allowed=wall.page.partition("?")[0])
    yield page
    assert page.trouble() == []
    page.close()


def assert_readable(page: Page) -> None:
    width, height = page.evaluate("[document.body.scrollWidth, document.body.scrollHeight]")
    assert width <= PROJECTOR["width"]
    assert height <= PROJECTOR["height"]
    assert min(page.evaluate(SIZES)) >= 28


def read_code(picture: bytes) -> str:
    image = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_GRAYSCALE)
    wide = np.pad(image, 64, constant_values=255)  # OpenCV needs a margin for some codes
    return str(cv2.QRCodeDetector().detectAndDecode(wide)[0])


def test_wall_is_readable_from_the_last_row(guarded: GuardedPage, wall: RunningWall) -> None:
    page = guarded.page
    page.set_viewport_size(PROJECTOR)
    page.goto(wall.teacher)
    status = page.get_by_role("status")
    expect(status).to_contain_text("60 of 60 have guessed")
    assert wall.teacher_token not in page.url
    page.reload()  # still the page of the teacher
    expect(page.get_by_text("For the teacher")).to_be_visible()
    assert page.locator("circle.dot").count() == 60
    assert page.locator(".mark").count() == 0
    code = page.get_by_role("img", name="QR code for phones")
    assert code.bounding_box()["width"] >= 256
    assert page.locator("#picture").bounding_box()["width"] > 900
    assert read_code(code.screenshot()) == wall.page
    page.keyboard.press("r")
    expect(page.locator(".median")).to_have_count(1)
    expect(page.locator("#sentence")).to_contain_text("Measured: 19 %")
    assert_readable(page)
    page.keyboard.press("p")
    expect(page.locator("h1")).to_have_text("Where we are")
    assert_readable(page)
    page.keyboard.press("ArrowRight")
    expect(status).to_contain_text("20 of 60 have guessed (times")
    page.keyboard.press("f")
    expect(status).to_contain_text("60 of 60 have guessed")


def test_teacher_and_phone_follow_each_other(
    guarded: GuardedPage, chromium: BrowserContext, wall: RunningWall
) -> None:
    phone = guarded.page
    teacher = chromium.new_page()
    for page in (phone, teacher):
        page.set_viewport_size(PHONE)
    teacher.goto(wall.teacher)
    teacher.get_by_text("For the teacher").click()
    teacher.get_by_label("Question").select_option("03c")
    phone.goto(wall.page)
    expect(phone.locator("h1")).to_contain_text("gets the time now")
    choice = wall.shown()["choices"][0]
    phone.get_by_role("button", name=choice).click()
    expect(phone.get_by_role("status")).to_contain_text(f"Saved: {choice}")
    expect(teacher.get_by_role("status")).to_contain_text("1 of 61 have guessed")
    teacher.get_by_label("Question").select_option("02a")
    expect(phone.locator("h1")).to_contain_text("page cache")
    for text, said in (("about", "Enter a number"), ("40,5", "Saved: 40.5 %")):
        phone.get_by_label("Your guess").fill(text)
        phone.get_by_role("button", name="Send").click()
        expect(phone.get_by_role("status")).to_contain_text(said)
    teacher.get_by_label("Measured value").fill("19")
    teacher.get_by_role("button", name="Send").click()
    expect(teacher.locator("#sentence")).to_contain_text("Measured: 19 %")
    expect(teacher.get_by_role("button", name="Cover")).to_be_visible()
    assert 0.19 in wall.shown()["marks"]
    teacher.get_by_role("button", name="Next question").click()
    expect(phone.locator("h1")).to_contain_text("How many times longer")
    expect(teacher.get_by_text(f"{seat(0)}, notebook 02")).to_be_visible()
    expect(teacher.get_by_text("1: The bill")).to_be_visible()
    name = "<img src=x onerror=alert(1)>"
    wall.post("result", "0", {"name": name, **asdict(GOOD)}, seat(0))
    expect(phone.locator("td.name")).to_have_text(name)
    for page in (phone, teacher):
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    teacher.close()
    assert guarded.js_errors == []
    wall.process.kill()
    expect(phone.get_by_role("status")).to_contain_text("The server does not answer.")
    guarded.js_errors.clear()  # requests that got no answer
