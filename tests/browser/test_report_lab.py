"""The report of the capstone in a real JupyterLab: keyboard input, kept after a restart."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]

CELLS = ["from course_utils.stories.capstone.report import write_report", "write_report()"]
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"


def test_typed_report_survives_a_restart(lab_root, lab_page):
    lab_page.run_cells(lab_root, "report", *CELLS)
    page = lab_page.page
    expect(page.get_by_text("Describe one change that you made.")).to_be_visible()
    page.get_by_label("Hypothesis 1").click()
    for text in ("Each event opens its file again.", "7 of 9 ms are open()", "One file", "faster"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    expect(page.get_by_text("Effect 1 contains no number.")).to_be_visible()
    page.get_by_role("button", name="Another change").click()
    page.get_by_label("Change 2", exact=True).fill("A pool of <b>workers</b>")
    expect(page.get_by_text("Report: 2 changes, 0 complete")).to_be_visible()
    page.evaluate(RESTART)
    lab_page.run_all()
    expect(page.get_by_label("Evidence 1")).to_have_value("7 of 9 ms are open()")
    expect(page.get_by_label("Change 2", exact=True)).to_have_value("A pool of <b>workers</b>")
    page.get_by_label("Effect 1").fill("AU 12 % before, 40 % now; 2,000 of 2,000 events")
    expect(page.get_by_text("Report: 2 changes, 1 complete")).to_be_visible()
    handed_in = (lab_root / "work" / "capstone_report.md").read_text("utf-8")
    assert "**Effect.** AU 12 % before, 40 % now" in handed_in
    lab_page.shoot("report-light")
    lab_page.set_dark(True)
    lab_page.shoot("report-dark")
    lab_page.set_dark(False)
    assert lab_page.external == []
    assert lab_page.js_errors == []
