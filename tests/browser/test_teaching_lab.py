"""Predictions, checks and a joined wall in a real JupyterLab, in light and dark."""

import pytest
from playwright.sync_api import expect

from tests.stories.wall.fake import until
from tests.stories.wall.helpers import running_wall

pytestmark = pytest.mark.browser

BEGIN = """
import os
os.environ["COURSE_HOME"] = {home!r}
import course_utils as cu
from course_utils.teaching.notebook import start
start.data_path = lambda name: None
cu.ready("02", wall={wall!r})
"""
CELLS = [
    "from course_utils.teaching.exercise import exercise, right, wrong\n"
    "@exercise('90.1', title='Double a number')\n"
    "def double(f):\n"
    "    return right('Doubled.') if f(2) == 4 else wrong('You added `0`.', 'Multiply by two.')",
    "cu.predict('02a', 'How much of the time does the GPU compute?', unit='%')",
    "cu.predict('90.2', 'What is slow?', choices=['storage', 'the CPU'])",
    "cu.check('90.1', ...)",
    "cu.check('90.1', lambda x: x)",
    "cu.check('90.1', lambda x: 2 * x)",
    "cu.reveal('02a', 18.5)",
    "cu.reveal('90.2', 'storage')",
]


def test_feedback_is_shown_and_guesses_are_kept_revealed_and_sent(lab_root, lab_page, tmp_path):
    (lab_root / "work" / ".course_cells" / "answers.json").unlink(missing_ok=True)
    page = lab_page.page
    with running_wall(tmp_path / "teacher") as wall:
        begin = BEGIN.format(home=str(tmp_path / "learner"), wall=wall.page)
        lab_page.run_cells(lab_root, "teaching", begin, *CELLS)
        assert f"Joined {wall.page.partition('/?')[0]} as seat " in lab_page.texts()[0]
        for headline in ("Not yet attempted", "Not right yet", "Right"):
            cards = page.locator(".jp-RenderedHTMLCommon b")
            expect(cards.filter(has_text=f"{headline}: exercise 90.1")).to_be_visible()
        expect(page.get_by_text("You made no prediction here").first).to_be_visible()
        field = page.get_by_role("textbox", name="How much of the time")
        no_number = "'much' is not a number. Enter a number, for example 40."
        for text, said in ("much", no_number), ("40 %", "Saved: 40 %"):
            field.fill(text)
            field.press("Enter")
            expect(page.get_by_text(said)).to_be_visible()
        page.get_by_role("listbox", name="What is slow?").select_option("the CPU")
        expect(page.get_by_text("Saved: the CPU")).to_be_visible()
        page.get_by_role("button", name="I am stuck").click()
        expect(page.get_by_role("button", name="I can continue")).to_be_visible()
        page.evaluate(
            """() => {
                const { content } = window.jupyterapp.shell.currentWidget;
                content.activeCellIndex = content.widgets.length - 2;
                return window.jupyterapp.commands.execute('notebook:run-cell-and-select-next')
                    .then(() => window.jupyterapp.commands.execute('notebook:run-cell'));
            }"""
        )
        said = "You predicted 40 %, and it is 18.5 %, 2.2 times less than you predicted."
        expect(page.get_by_text(said)).to_be_visible()
        expect(page.get_by_text('You predicted "the CPU", and it is "storage".')).to_be_visible()
        until(lambda: wall.shown()["guessed"] == 1)
        until(lambda: [at for _, at in wall.shown(wall.teacher_token)["hands"]] == ["02"])
        ((_, counts, _),) = wall.shown(wall.teacher_token)["checks"]
        assert counts[:2] == [1, 0]  # the last check of this seat
    assert (lab_page.errors(), lab_page.trouble()) == ([], [])
