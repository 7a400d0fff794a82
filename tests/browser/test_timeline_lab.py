"""The live widget in a real JupyterLab: it draws without the kernel, and sends its state."""

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage

pytestmark = pytest.mark.browser

CELLS = [
    "from keepfed.measure.simulate import Pipeline, simulate\n"
    "from keepfed.measure.picture.timeline import Timeline",
    "times = dict(read_ms=60, decode_ms=20, copy_ms=8, step_ms=40, steps=20)\n"
    "slow = simulate(Pipeline(**times))\n"
    "fast = simulate(Pipeline(**times, num_workers=2))",
    "box = Timeline({'naive': slow, 'workers': fast})\nbox",
    "box.state",
]


@pytest.fixture(scope="module")
def lab_page(chromium, lab_server):
    """Return one window for all of these tests, because running a notebook takes long."""
    page = LabPage(chromium, url=lab_server.url)
    yield page
    page.close()


@pytest.fixture(scope="module")
def opened(lab_root, lab_page):
    lab_page.run_cells(lab_root, "timeline", *CELLS)
    shown = lab_page.page.locator(".tl[data-view]")
    shown.wait_for()
    return shown


@pytest.fixture
def timeline(opened):
    opened.get_by_role("radio", name="naive", exact=True).check()
    return opened


def test_switch_is_drawn_at_once_and_sent_to_the_kernel(lab_page, timeline):
    page = lab_page.page
    timeline.get_by_role("radio", name="workers", exact=True).check()
    expect(timeline.locator(".sentence")).to_contain_text("Workers: ")
    page.evaluate(
        """() => {
            const { content } = window.jupyterapp.shell.currentWidget;
            content.activeCellIndex = content.widgets.length - 1;
            return window.jupyterapp.commands.execute('notebook:run-cell');
        }"""
    )
    output = page.locator(".jp-OutputArea-output pre").filter(has_text="'show': 'workers'")
    expect(output).to_be_visible()
    assert lab_page.trouble() == []


def test_timeline_follows_the_theme_of_jupyterlab(lab_page, timeline):
    before = timeline.get_attribute("class")
    lab_page.set_dark(True)
    expect(timeline).to_have_class("tl dark")
    lab_page.set_dark(False)
    expect(timeline).to_have_class(before)


def test_reopened_notebook_shows_timelines_without_running(
    chromium, lab_server, lab_page, timeline
):
    lab_page.save()
    lab_page.end_kernels()
    tomorrow = LabPage(chromium, url=lab_server.url)
    tomorrow.open("work/timeline.ipynb")
    tomorrow.page.locator(".tl[data-view]").wait_for()
    assert tomorrow.switch_timelines() == 1
    assert tomorrow.trouble() == []
    tomorrow.close()
