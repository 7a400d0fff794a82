"""Both versions of every notebook run from top to bottom, with every start method of workers."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode

from notebooks.build import HERE, main, sources
from tests.notebooks.kernel import code_cells, run_all, verdicts
from tests.notebooks.short_run import (
    IN_THE_BROWSER,
    INTERRUPTED,
    TOGETHER,
    WITHOUT_EXERCISES,
    answers_needed,
    both_versions,
    take,
    take_together,
)

SAMPLE = Path(__file__).parent / "sample"
SOURCES = [*sources(HERE / "source"), *sources(SAMPLE)]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(HERE / "solutions", folder / "solutions")
    for notebook in HERE.glob("*.ipynb"):
        shutil.copy(notebook, folder)
    sample = folder / "sample"
    assert main(["--source", str(SAMPLE), "--out", str(sample)]) == 0
    shutil.copytree(sample, folder, dirs_exist_ok=True)
    return folder


Run = Callable[[str, list[NotebookNode]], list[tuple[str, str]]]


@take(SOURCES, but={*IN_THE_BROWSER, *WITHOUT_EXERCISES, *TOGETHER, "90"})
def test_learner_version_runs_without_answers(notebook: Path, run: Run, built: Path) -> None:
    cells = code_cells(built / notebook.with_suffix(".ipynb").name)
    assert {status for _, status in run("learner", cells)} <= {"todo"}


# 00 checks a training whose workers wait only for storage, and other tests would delay them
@take(SOURCES, but={*INTERRUPTED, *TOGETHER}, marks={"00": [pytest.mark.alone]})
def test_all_solutions_are_right(notebook: Path, run: Run, built: Path, retry: Any) -> None:
    cells = code_cells(built / "solutions" / notebook.with_suffix(".ipynb").name)
    # on a busy machine, checks of measurements give no result
    found = retry(lambda: run("solutions", cells), lambda found: "todo" not in dict(found).values())
    assert {status for _, status in found} <= {"right"}


@take_together(SOURCES)
def test_each_exercise_is_todo_and_then_right(
    notebook: Path, run: Run, built: Path, retry: Any
) -> None:
    learner, solved = (
        code_cells(folder / notebook.with_suffix(".ipynb").name)
        for folder in (built, built / "solutions")
    )
    assert not answers_needed(learner, solved), "the learner version must run without answers"
    cells = list(both_versions(learner, solved))
    found = retry(lambda: run("both", cells), _to_do_then_right)
    assert _to_do_then_right(found), found


def _to_do_then_right(found: list[tuple[str, str]]) -> bool:
    return [status for _, status in found] == ["todo", "right"] * (len(found) // 2)


@pytest.fixture
def run(
    notebook: Path,
    start_method: str,
    data: Path,
    tmp_path: Path,
    record_seconds: Callable[[str, float], None],
) -> Run:
    """Return a function that runs cells in a fresh folder and returns the status of each check."""

    def run(version: str, cells: list[NotebookNode]) -> list[tuple[str, str]]:
        # in the same folder, a second attempt would start with files of the first one
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        shutil.copy(SAMPLE / "sample_checks.py", folder)
        start = time.perf_counter()
        shown = run_all(
            cells,
            folder,
            COURSE_DATA=str(data),
            COURSE_SIZE="S",
            COURSE_START_METHOD=start_method,
            MPLBACKEND="module://matplotlib_inline.backend_inline",
        )
        record_seconds(f"{notebook.stem}, {version}, {start_method}", time.perf_counter() - start)
        found = verdicts(shown)
        assert len(found) == sum(cell.source.count("cu.check(") for cell in cells)
        return found

    return run
