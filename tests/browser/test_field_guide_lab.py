"""The search box of the field guide in a real JupyterLab."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]


def test_log_is_looked_up_and_entry_run_by_keyboard(lab_root, lab_page):
    source = "from course_utils.stories.field_guide import Search\nSearch()"
    lab_page.run_cells(lab_root, "guide", source)
    page = lab_page.page
    box = page.get_by_role("textbox", name="Message:")
    box.fill("Traceback:\nRuntimeError: stack expects each tensor to be\n  equal size, but got [3]")
    box.press("Tab")
    expect(page.get_by_role("button", name="Look it up")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Samples of different sizes cannot be stacked")).to_be_visible()
    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_role("button", name="Run it again")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("torch.Size([2, 5, 3])")).to_be_visible()
    page.get_by_text("The program:").click()
    expect(page.get_by_text("collate_fn=pad)")).to_be_visible()
    for theme in ("dark", "light"):
        lab_page.set_dark(theme == "dark")
        lab_page.shoot(f"field-guide-{theme}")
    box.fill("KeyError: 'image'")
    page.get_by_role("button", name="Look it up").click()
    expect(page.get_by_text("Not known")).to_be_visible()
    assert lab_page.external == []
    assert lab_page.js_errors == []
