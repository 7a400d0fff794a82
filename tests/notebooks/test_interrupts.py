"""Interrupting any cell of a notebook leaves no worker behind, and the cell runs again."""

import multiprocessing
import os
from pathlib import Path

import nbformat
import pytest

from notebooks.build import HERE
from tests.notebooks.kernel import running_kernel

pytestmark = pytest.mark.slow
METHODS = ("fork", "spawn", "forkserver")
NOTEBOOKS = [
    (path, method)
    for number, path in enumerate(sorted((HERE / "solutions").glob("0[1-9]_*.ipynb")))
    for method in METHODS
    if method in multiprocessing.get_all_start_methods()
    and (method == METHODS[number % 3] or os.environ.get("COURSE_TEST_MATRIX") == "full")
]
LEFT = """
import course_utils as cu
cu.cleanup_workers()
from course_utils.teaching.start import _children
print(len(_children()), "left")
"""
LONG_ENOUGH_S = 0.7  # to be interrupted by a learner who loses patience


@pytest.mark.parametrize(
    ("notebook", "method"), NOTEBOOKS, ids=[f"{path.stem[:2]}-{m}" for path, m in NOTEBOOKS]
)
def test_an_interrupted_cell_leaves_no_worker_and_runs_again(
    notebook: Path, method: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_DATA", str(data))
    monkeypatch.setenv("COURSE_SIZE", "S")
    monkeypatch.setenv("COURSE_START_METHOD", method)
    interrupted = 0
    with running_kernel(tmp_path) as kernel:
        ready, *cells = [c for c in nbformat.read(notebook, 4).cells if c.cell_type == "code"]
        assert "Ready" in kernel.run(ready.source)
        for cell in cells:
            if kernel.interrupt_if_longer(cell.source, seconds=LONG_ENOUGH_S):
                interrupted += 1
                assert "0 left\n" in kernel.run(LEFT), cell.source
                assert not kernel.error(cell.source), cell.source
    assert interrupted
