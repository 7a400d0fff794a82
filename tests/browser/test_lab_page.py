"""`course lab` opens the right kernel and a window without popups or external requests."""

import sys
from pathlib import Path

import nbformat
import pytest

from course_utils.command.lab import Server
from tests.browser.lab_page import FIRST, LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELL = "import sys, os; print(sys.executable, os.getcwd())"


def test_first_window_has_no_popups_and_runs_this_python_in_its_folder(
    lab_page: LabPage, lab_server: Server, lab_root: Path
) -> None:
    prose = f"# One heading\n\n## Another heading\n\n{'word ' * 99}"
    cells = nbformat.v4.new_markdown_cell(prose), nbformat.v4.new_code_cell(CELL)
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    notebook = nbformat.v4.new_notebook(cells=[*cells], metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab_root / FIRST)
    lab_page.go(lab_server.url)
    lab_page.page.locator(".jp-TableOfContents").get_by_text("Another heading").wait_for()
    lab_page.run_all()
    assert lab_page.texts() == [f"{sys.executable} {lab_root / 'work'}\n"]
    lines = lab_page.page.locator(".jp-MarkdownOutput > p").first
    assert lines.evaluate("p => p.clientWidth / parseFloat(getComputedStyle(p).fontSize)") <= 46
    assert lab_page.trouble() == []
