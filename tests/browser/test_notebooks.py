"""Every notebook, opened and run in JupyterLab."""

import shutil
from pathlib import Path

import pytest

from course_utils.paths import REPO
from tests.browser.lab_page import LabPage
from tests.notebooks.kernel import complaints, verdicts

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))
SHORT = "09_prefetch_to_cuda"  # the one that a short run takes
WITH_SWITCHES = {
    "00_start_here",
    "02_see_the_gpu_wait",
    "03_measure_before_you_touch",
    "04_use_workers_wisely",
    "05_stream_and_shuffle",
    "06_choose_a_file_format",
    "08_augment_on_cpu_or_gpu",
    "09_prefetch_to_cuda",
    "10_stream_shards",
}


@pytest.fixture(scope="session")
def handed_out(lab_root: Path) -> None:
    for notebook in NOTEBOOKS:  # replace files that an earlier test may have left
        shutil.copy(notebook, lab_root / "work")


@pytest.mark.usefixtures("handed_out")
@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.full] * (path.stem != SHORT))
        for path in NOTEBOOKS
    ],
)
def test_notebook_runs_with_working_switches_and_no_requests(
    lab_page: LabPage, notebook: Path
) -> None:
    lab_page.open(f"work/{notebook.name}")
    lab_page.run_all()
    assert lab_page.errors() == []
    cells = lab_page.cells()
    assert all(cell["count"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert complaints(outputs) == []
    assert {status for _, status in verdicts(outputs)} <= {"todo"}
    assert len(verdicts(outputs)) == notebook.read_text("utf-8").count("cu.check(")
    if notebook.stem in WITH_SWITCHES:
        assert lab_page.switch_timelines() > 0
    assert lab_page.popups() == []
    assert lab_page.external == []
    assert lab_page.js_errors == []
