"""The explorer as an offline page without a kernel, on a phone and on a desktop."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from course_utils.teaching.explorer import explorer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IN_SIGHT = 660  # visible height of a phone's browser, in pixels
MOST_BYTES = 600_000


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_explorer_page_shows_switches_and_picture_together(
    guarded_page, tmp_path: Path, width: int, height: int
) -> None:
    path, page = tmp_path / "explorer.html", guarded_page.page
    path.write_text(explorer().to_html("Explorer"), "utf-8")
    assert path.stat().st_size < MOST_BYTES
    page.set_viewport_size({"width": width, "height": height})
    page.goto(path.as_uri())
    expect(page.locator(".sentence")).to_contain_text("Naive: the GPU computes 37 %")
    for part in (".controls", ".stage"):
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= IN_SIGHT
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    page.get_by_role("radio", name="CUDA prefetch").check()
    expect(page.locator(".sentence")).not_to_contain_text("Naive")
    assert guarded_page.external == []
    assert guarded_page.js_errors == []
