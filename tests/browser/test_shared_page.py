"""A notebook that JupyterLab saved becomes a page whose timelines still respond, offline."""

import nbformat
import pytest
from playwright.sync_api import expect

from course_utils.command.page import as_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = (
    "import course_utils as cu\nfrom keepfed.measure.picture import Timeline",
    "times = dict(read_ms=60, decode_ms=20, copy_ms=8, step_ms=40, steps=20)\n"
    "runs = {str(n): cu.simulate(cu.Pipeline(**times, num_workers=n)) for n in (0, 2)}",
    "Timeline({'naive': runs['0'], 'workers': runs['2']})",
)


def test_page_of_a_saved_notebook_toggles(lab_root, lab_page, guarded_page):
    path = lab_root / "work" / "shared.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)
    lab_page.open("work/shared.ipynb")
    lab_page.run_all()
    lab_page.page.locator(".tl[data-view]").wait_for()
    lab_page.save()
    file = path.with_suffix(".html")
    html, live = as_page(path)
    assert live == 1
    file.write_text(html, "utf-8")

    page = guarded_page.page
    page.goto(file.as_uri())
    timeline = page.locator(".tl[data-view]")
    timeline.get_by_role("radio", name="workers", exact=True).check()
    expect(timeline.locator(".sentence")).to_contain_text("Workers: ")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(timeline).to_be_visible()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    assert guarded_page.external == []
    assert guarded_page.js_errors == []
