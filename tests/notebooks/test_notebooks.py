"""Both versions of every notebook run from top to bottom, whichever way workers start."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from notebooks.build import HERE, main
from tests.notebooks.execute import Run, execute
from tests.notebooks.turns import FULL, turns

SAMPLE = Path(__file__).parent / "sample"
SOURCES = {
    path.stem: path.parent
    for folder in (HERE / "source", SAMPLE)
    for path in sorted(folder.glob("[0-9][0-9]_*.py"))
}
# Those of the course run elsewhere too: learner versions in the browser tests, the solutions in
# test_interrupts.py.
NAMES = [name for name, folder in SOURCES.items() if FULL or folder == SAMPLE]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    for source in set(SOURCES.values()):
        assert main(["--source", str(source), "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def learner_runs(
    request: pytest.FixtureRequest, built: Path, data: Path
) -> Iterator[dict[tuple[str, str], Future[Run]]]:
    """Run the chosen learner versions two at a time: they judge nothing, so speed may suffer."""
    chosen = [
        (item.callspec.params["name"], item.callspec.params["start_method"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.obj is test_the_learner_version_runs_with_nothing_attempted
    ]
    with ThreadPoolExecutor(2) as pool:
        runs = {
            case: pool.submit(_run, built / f"{case[0]}.ipynb", case[1], data) for case in chosen
        }
        wait(runs.values())
        yield runs


@turns(NAMES)
def test_the_learner_version_runs_with_nothing_attempted(
    name: str,
    start_method: str,
    learner_runs: dict[tuple[str, str], Future[Run]],
    note_seconds: Callable[[str, float], None],
) -> None:
    run = learner_runs[name, start_method].result()
    note_seconds(f"{name}, learner, {start_method}", run.seconds)
    assert set(run.verdicts.values()) <= {"todo"}
    assert len(run.verdicts) == _checks(run)
    assert not run.complaints


@turns(NAMES, first=1)
def test_the_solutions_are_all_right(
    name: str,
    start_method: str,
    built: Path,
    data: Path,
    note_seconds: Callable[[str, float], None],
) -> None:
    run = _run(built / "solutions" / f"{name}.ipynb", start_method, data)
    note_seconds(f"{name}, solutions, {start_method}", run.seconds)
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
