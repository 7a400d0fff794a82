"""`course lab` opens the right kernel and a window without popups or external requests."""

import sys
from pathlib import Path

import nbformat
import pytest

from course_utils.command.lab import Server
from tests.browser.lab_page import FIRST, GuardedPage, LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def write_notebook(path: Path, *cells: str) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(f"# One heading\n\n## Another heading\n\n{'word ' * 99}"),
            *map(nbformat.v4.new_code_cell, cells),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}},
    )
    nbformat.write(notebook, path)


@pytest.mark.full
def test_notebook_runs_with_this_python_in_its_folder(lab_page: LabPage, lab_root: Path) -> None:
    write_notebook(
        lab_root / "work" / "kernel.ipynb", "import sys, os; print(sys.executable, os.getcwd())"
    )
    lab_page.open("work/kernel.ipynb")
    lab_page.run_all()
    assert lab_page.texts() == [f"{sys.executable} {lab_root / 'work'}\n"]
    assert lab_page.errors() == []


def test_first_window_has_no_popups_and_shows_contents(
    lab_page: LabPage, lab_server: Server, lab_root: Path
) -> None:
    write_notebook(lab_root / FIRST, "1 + 1")
    lab_page.go(lab_server.url)
    lab_page.page.locator(".jp-TableOfContents").get_by_text("Another heading").wait_for()
    lab_page.run_all()
    lab_page.shoot("first")
    prose = lab_page.page.locator(".jp-MarkdownOutput > p").first
    assert prose.evaluate("p => p.clientWidth / parseFloat(getComputedStyle(p).fontSize)") <= 46
    assert lab_page.popups() == []
    assert lab_page.external == []
    assert lab_page.js_errors == []


def test_widget_is_drawn_in_light_and_dark(lab_page: LabPage, lab_root: Path) -> None:
    source = """
import anywidget
class Hello(anywidget.AnyWidget):
    _esm = "export default {render({el}) {el.innerHTML = '<b class=hello>hello</b>'}}"
Hello()
"""
    write_notebook(lab_root / "work" / "widget.ipynb", source)
    lab_page.open("work/widget.ipynb")
    lab_page.run_all()
    lab_page.page.locator("b.hello").wait_for()
    lab_page.set_dark(True)
    dark = lab_page.shoot("widget-dark").read_bytes()
    lab_page.set_dark(False)
    assert lab_page.shoot("widget-light").read_bytes() != dark
    assert lab_page.external == []


@pytest.mark.full
def test_unexpected_cell_error_is_reported(lab_page: LabPage, lab_root: Path) -> None:
    write_notebook(lab_root / "work" / "error.ipynb", "1 / 0")
    lab_page.open("work/error.ipynb")
    lab_page.run_all()
    assert lab_page.errors() == ["ZeroDivisionError: division by zero"]


def test_external_request_is_blocked_and_recorded(
    guarded_page: GuardedPage, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text('<img src="https://example.com/x.png">')
    guarded_page.page.goto(page.as_uri())
    assert guarded_page.external == ["https://example.com/x.png"]
