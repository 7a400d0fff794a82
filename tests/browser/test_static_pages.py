"""Pages that need no kernel: the explorer, a lecture demo, and the report of a watched program."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from keepfed.measure.watch.report import write
from keepfed.measure.watch.timing.ring_file import ProgramRun
from tests.browser.lab_page import GuardedPage
from tests.measure.watch.handmade import loop

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_report_prints_one_page_and_fits_a_phone(guarded_page: GuardedPage, tmp_path: Path) -> None:
    run, page = ProgramRun("python train.py", machine="node7", ended="today"), guarded_page.page
    for workers in (0, 8):
        folder = tmp_path / str(workers)
        folder.mkdir()
        write([loop(workers=workers)], folder, run)
        page.set_viewport_size({"width": 1280, "height": 720})
        page.goto((folder / "report.html").as_uri())
        expect(page.locator(".tl[data-view]")).to_be_visible()
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) == 1
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390, workers
    assert guarded_page.trouble() == []
