"""Both versions of every notebook run from top to bottom, whichever way workers start."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from notebooks.build import HERE, main, sources
from tests.notebooks.kernel import code_cells, run_all, verdicts
from tests.notebooks.short_run import ALIKE, IN_THE_BROWSER, INTERRUPTED, take

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


@take(SOURCES, but={*IN_THE_BROWSER, *ALIKE, "90"})
def test_the_learner_version_runs_with_nothing_attempted(
    notebook: Path, judged: Callable[[Path], dict[str, str]], built: Path
) -> None:
    assert set(judged(built / f"{notebook.stem}.ipynb").values()) <= {"todo"}


@take(SOURCES, but=INTERRUPTED)
def test_the_solutions_are_all_right(
    notebook: Path, judged: Callable[[Path], dict[str, str]], built: Path
) -> None:
    solved = built / "solutions" / f"{notebook.stem}.ipynb"
    found = set(judged(solved).values())
    if "todo" in found:  # on a busy machine a check that measures judges nothing
        found = set(judged(solved).values())
    assert found <= {"right"}


@pytest.fixture
def judged(
    start_method: str, data: Path, tmp_path: Path, note_seconds: Callable[[str, float], None]
) -> Callable[[Path], dict[str, str]]:
    """Run a copy of a notebook in a folder of its own; return the verdict of each check in it."""

    def run(notebook: Path) -> dict[str, str]:
        shutil.copy(notebook, tmp_path)
        shutil.copy(SAMPLE / "sample_checks.py", tmp_path)
        cells, start = code_cells(notebook), time.perf_counter()
        shown = run_all(
            cells,
            tmp_path,
            COURSE_DATA=str(data),
            COURSE_SIZE="S",
            COURSE_START_METHOD=start_method,
            MPLBACKEND="module://matplotlib_inline.backend_inline",
        )
        version = "solutions" if notebook.parent.name == "solutions" else "learner"
        note_seconds(f"{notebook.stem}, {version}, {start_method}", time.perf_counter() - start)
        found = verdicts(shown)
        assert len(found) == sum(cell.source.count("cu.check(") for cell in cells)
        return found

    return run
