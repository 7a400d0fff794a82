"""The picture at the top of notebook 00 works before anything has run."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from course_utils.command import lab
from course_utils.paths import shipped
from tests.browser.lab_page import FIRST, LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_first_picture_switches_without_running_a_cell(lab_page: LabPage, lab_root: Path) -> None:
    notebook = lab_root / "work" / "first_picture.ipynb"
    shutil.copy(shipped("notebooks") / Path(FIRST).name, notebook)
    lab.trust([notebook], state=lab_root / ".jupyter")
    lab_page.open("work/first_picture.ipynb")
    lab_page.page.set_viewport_size({"width": 1280, "height": 800})
    picture = lab_page.page.locator(".tl").first
    expect(picture.locator(".sentence")).to_contain_text("Naive: the GPU computes")
    picture.get_by_role("radio", name="CUDA prefetch").check()
    expect(picture.locator(".sentence")).to_contain_text("CUDA prefetch: the GPU computes")
    for row in (".controls > *", ".facts > *"):
        boxes = [part.bounding_box() for part in picture.locator(row).all()]
        assert len(boxes) == 4
        assert len({box["y"] for box in boxes if box}) == 1
    box = picture.locator(".stage").bounding_box()
    assert box["y"] + box["height"] <= 770  # the status bar begins here
    assert all(cell["count"] is None for cell in lab_page.cells())
    assert lab_page.js_errors == []
