"""Both versions of every notebook run from top to bottom, whichever way workers start."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from notebooks.build import HERE, main
from tests.notebooks.execute import Run, execute
from tests.notebooks.short_run import IN_THE_BROWSER, INTERRUPTED, take

SAMPLE = Path(__file__).parent / "sample"
SOURCES = [*sorted((HERE / "source").glob("[0-9][0-9]_*.py")), *SAMPLE.glob("[0-9][0-9]_*.py")]
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


@take(SOURCES, but=IN_THE_BROWSER)
def test_the_learner_version_runs_with_nothing_attempted(
    notebook: Path,
    start_method: str,
    built: Path,
    data: Path,
    note_seconds: Callable[[str, float], None],
) -> None:
    run = _run(built / f"{notebook.stem}.ipynb", start_method, data)
    note_seconds(f"{notebook.stem}, learner, {start_method}", run.seconds)
    assert set(run.verdicts.values()) <= {"todo"}
    assert len(run.verdicts) == _checks(run)
    assert not run.complaints


@take(SOURCES, but=INTERRUPTED)
def test_the_solutions_are_all_right(
    notebook: Path,
    start_method: str,
    built: Path,
    data: Path,
    note_seconds: Callable[[str, float], None],
) -> None:
    run = _run(built / "solutions" / f"{notebook.stem}.ipynb", start_method, data)
    note_seconds(f"{notebook.stem}, solutions, {start_method}", run.seconds)
    assert set(run.verdicts.values()) <= {"right"}, run.text
    assert len(run.verdicts) == _checks(run)
    assert not run.complaints


def _run(notebook: Path, start_method: str, data: Path) -> Run:
    """Run a copy of `notebook` in a folder of its own, where it leaves what it writes."""
    folder = notebook.parent / f"{notebook.stem}-{start_method}"
    folder.mkdir()
    shutil.copy(notebook, folder)
    shutil.copy(SAMPLE / "sample_checks.py", folder)
    env = {
        "COURSE_DATA": str(data),
        "COURSE_SIZE": "S",
        "COURSE_START_METHOD": start_method,
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    return execute(notebook, folder, env=env)


def _checks(run: Run) -> int:
    return sum(cell.source.count("cu.check(") for cell in run.notebook.cells)
