"""Every notebook runs from top to bottom.

A short run takes each notebook once, with forked workers: each exercise as handed out, then solved.
The full run takes both versions apart, with every way to start workers.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode

from notebooks.build import HERE, main, number, sources
from tests.notebooks.kernel import code_cells, run_all, verdicts
from tests.notebooks.versions import answers_needed, both_versions

SAMPLE = Path(__file__).parent / "sample"
SOURCES = [*sources(HERE / "source"), *sources(SAMPLE)]
# 00 checks a training whose workers wait only for storage, and other tests would delay them
ALONE = {"00"}
MOST_CPU_S = 150  # of a notebook, while other programs run; alone, the longest take 90 s

Verdicts = list[tuple[str, str]]
Run = Callable[[str, list[NotebookNode]], Verdicts]

PARAMS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.alone] * (number(path) in ALONE))
    for path in SOURCES
]
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("notebook", PARAMS)]


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


@pytest.fixture
def versions(notebook: Path, built: Path) -> tuple[list[NotebookNode], list[NotebookNode]]:
    name = notebook.with_suffix(".ipynb").name
    return code_cells(built / name), code_cells(built / "solutions" / name)


@pytest.fixture
def run(
    notebook: Path, data: Path, tmp_path: Path, record_seconds: Callable[[str, float], None]
) -> Run:
    """Return a function that runs cells in a fresh folder and returns the status of each check."""

    def run(start_method: str, cells: list[NotebookNode]) -> Verdicts:
        # in the same folder, a second attempt would start with files of the first one
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        shutil.copy(SAMPLE / "sample_checks.py", folder)
        variables = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "COURSE_SIZE": "S"}
        variables |= {"COURSE_DATA": str(data), "COURSE_START_METHOD": start_method}
        outputs, cpu_s = run_all(cells, folder, **variables)
        record_seconds(f"{notebook.stem}, {len(cells)} cells, {start_method}", cpu_s)
        assert cpu_s < MOST_CPU_S
        found = verdicts(outputs)
        assert len(found) == sum(cell.source.count("cu.check(") for cell in cells)
        return found

    return run


@pytest.mark.short
def test_each_exercise_is_todo_and_then_right(versions: Any, run: Run, retry: Any) -> None:
    if answers_needed(*versions):  # later cells use an answer, and must run without it
        assert {status for _, status in run("fork", versions[0])} <= {"todo"}
    cells = list(both_versions(*versions))
    # on a busy machine, checks of measurements give no result
    found = retry(lambda: run("fork", cells), _to_do_then_right)
    assert _to_do_then_right(found), found


def _to_do_then_right(found: Verdicts) -> bool:
    return [status for _, status in found] == ["todo", "right"] * (len(found) // 2)


@pytest.mark.full
def test_learner_version_runs_without_answers(versions: Any, run: Run, start_method: str) -> None:
    assert {status for _, status in run(start_method, versions[0])} <= {"todo"}


@pytest.mark.full
def test_all_solutions_are_right(versions: Any, run: Run, start_method: str, retry: Any) -> None:
    found = retry(lambda: run(start_method, versions[1]), lambda found: "todo" not in str(found))
    assert {status for _, status in found} <= {"right"}
