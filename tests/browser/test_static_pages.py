"""Pages that need no kernel: the explorer, a lecture demo, and the report of a watched program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from course_utils.paths import recording
from course_utils.stories.lecture import demos, load_finding
from course_utils.teaching.explorer import explorer
from keepfed.measure.watch.report import write
from keepfed.measure.watch.timing.ring_file import ProgramRun
from tests.browser.lab_page import GuardedPage
from tests.measure.watch.handmade import loop

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IN_SIGHT = 660  # visible height of a phone's browser, in pixels


def test_explorer_page_shows_switches_and_picture_together(
    guarded_page: GuardedPage, tmp_path: Path
) -> None:
    path, page = tmp_path / "explorer.html", guarded_page.page
    path.write_text(explorer().to_html("Explorer"), "utf-8")
    for width, height in ((390, 844), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(path.as_uri())
        expect(page.locator(".sentence")).to_contain_text("Naive: the GPU computes 37 %")
        for part in (".controls", ".stage"):
            box = page.locator(part).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= IN_SIGHT, (part, width)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
        page.get_by_role("radio", name="CUDA prefetch").check()
        expect(page.locator(".sentence")).not_to_contain_text("Naive")
    assert guarded_page.external == []
    assert guarded_page.js_errors == []


def test_demo_page_shows_picture_and_result_without_scrolling(
    guarded_page: GuardedPage, tmp_path: Path
) -> None:
    path, page = tmp_path / "wait.html", guarded_page.page
    finding = load_finding(recording("demos/wait.json"))
    path.write_text(finding.page(demos()["wait"], recorded=True), "utf-8")
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(path.as_uri())
    expect(page.locator(".tl[data-view]")).to_be_visible()
    result = page.locator("details").last.bounding_box()
    assert result is not None
    assert result["y"] + result["height"] <= 720


def test_report_prints_on_one_page_and_fits_a_phone(
    guarded_page: GuardedPage, tmp_path: Path
) -> None:
    run, page = ProgramRun("python train.py", machine="node7", ended="today"), guarded_page.page
    for workers in (0, 8):
        folders = [tmp_path / f"{workers}-{number}" for number in range(2)]
        for folder in folders:
            folder.mkdir()
            write([loop(workers=workers)], folder, run, folders[:1])
        page.set_viewport_size({"width": 1280, "height": 720})
        page.goto((folders[1] / "report.html").as_uri())
        expect(page.locator(".tl[data-view]")).to_be_visible()
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) == 1
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390, workers
    assert guarded_page.external == []
    assert guarded_page.js_errors == []
