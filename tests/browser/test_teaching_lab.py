"""Predictions and checks in a real JupyterLab, in light and dark."""

import nbformat
import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

CELLS = [
    "from course_utils.teaching.exercise import exercise, right, wrong\n"
    "import course_utils as cu\n"
    "@exercise('90.1', title='Double a number')\n"
    "def double(f):\n"
    "    return right('Doubled.') if f(2) == 4 else wrong('You added `0`.', 'Multiply by two.')",
    "cu.predict('90.1', 'How much of the time does the GPU compute?', unit='%')",
    "cu.predict('90.2', 'What is slow?', choices=['storage', 'the CPU'])",
    "cu.check('90.1', ...)",
    "cu.check('90.1', lambda x: x)",
    "cu.check('90.1', lambda x: 2 * x)",
    "cu.reveal('90.1', 18.5)",
    "cu.reveal('90.2', 'storage')",
]


@pytest.fixture
def page(lab_root, lab_page):
    (lab_root / "work" / ".course_cells" / "answers.json").unlink(missing_ok=True)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, lab_root / "work" / "teaching.ipynb")
    lab_page.open("work/teaching.ipynb")
    lab_page.run_all()
    assert lab_page.errors() == []
    return lab_page.page


def test_feedback_is_shown_and_guess_is_kept_and_revealed(lab_page, page):
    for headline in ("Not yet attempted", "Not right yet", "Right"):
        cards = page.locator(".jp-RenderedHTMLCommon b")
        expect(cards.filter(has_text=f"{headline}: exercise 90.1")).to_be_visible()
    expect(page.get_by_text("You made no prediction here").first).to_be_visible()
    field = page.get_by_role("textbox", name="How much of the time")
    field.fill("much")
    field.press("Enter")
    expect(
        page.get_by_text("'much' is not a number. Enter a number, for example 40.")
    ).to_be_visible()
    field.fill("40 %")
    field.press("Enter")
    expect(page.get_by_text("Saved: 40 %")).to_be_visible()
    page.get_by_role("listbox", name="What is slow?").select_option("the CPU")
    expect(page.get_by_text("Saved: the CPU")).to_be_visible()
    page.evaluate(
        """() => {
            const { content } = window.jupyterapp.shell.currentWidget;
            content.activeCellIndex = content.widgets.length - 2;
            return window.jupyterapp.commands.execute('notebook:run-cell-and-select-next')
                .then(() => window.jupyterapp.commands.execute('notebook:run-cell'));
        }"""
    )
    said = page.get_by_text(
        "You predicted 40 %, and it is 18.5 %, 2.2 times less than you predicted."
    )
    expect(said).to_be_visible()
    expect(page.get_by_text('You predicted "the CPU", and it is "storage".')).to_be_visible()
    lab_page.shoot("teaching-light")
    lab_page.set_dark(True)
    lab_page.shoot("teaching-dark")
    lab_page.set_dark(False)
    assert lab_page.external == []
    assert lab_page.js_errors == []
