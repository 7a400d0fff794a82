from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_utils.paths import data_root
from course_utils.teaching.exercise import VERDICT_MIME
from docs.book import execute
from docs.book.execute import digest_of, without_local_paths


def test_a_change_of_a_package_makes_a_new_execution(tmp_path: Path) -> None:
    module = tmp_path / "course_utils" / "words.py"
    module.parent.mkdir()
    module.write_text("one")
    before = digest_of(tmp_path)
    (module.parent / "notes.txt").write_text("no code")
    assert digest_of(tmp_path) == before
    module.write_text("two")
    assert digest_of(tmp_path) != before


@pytest.mark.parametrize("status", ["right", "wrong"])
def test_a_run_is_kept_and_shown_again_unless_a_solution_is_refused(
    status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = new_output("display_data", {VERDICT_MIME: {"exercise": "07.2", "status": status}})
    monkeypatch.setattr(execute, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(execute, "run", lambda notebook: notebook.cells[1].update(outputs=[shown]))
    path = tmp_path / "07_x.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell("a"), new_code_cell("1")]), path)
    refused = ["07_x: the check rejected our solution of 07.2."] * (status == "wrong")
    assert list(execute.run_changed([path])) == refused
    assert execute.with_outputs(path).cells[1].outputs == [shown] * (status == "right")
    if status == "right":
        monkeypatch.delattr(execute, "run")  # a second run would fail
        assert list(execute.run_changed([path])) == []


def test_the_book_says_nothing_of_the_folders_of_a_machine() -> None:
    for shown, told in (
        (f"in {data_root()}/events-S)", "in …/data/events-S)"),
        ("/Users/ada/.venv/lib/python3.11/site-packages/torch/a.py", "…/site-packages/torch/a.py"),
        ("File &quot;/opt/lib/python3.14/queue.py&quot;", "File &quot;…/python3.14/queue.py&quot;"),
        ("/dev/shm and 1 GB/s", "/dev/shm and 1 GB/s"),
    ):
        assert without_local_paths(shown) == told, shown
