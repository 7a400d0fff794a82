import shutil
from pathlib import Path

import pytest

from course_utils.paths import REPO
from tests.browser.lab_page import LabPage
from tests.notebooks.kernel import complaints, verdicts

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))
SHORT = "09_prefetch_to_cuda"  # the one that a short run takes
WITH_SWITCHES = {"00", "02", "03", "04", "05", "06", "08", "09", "10"}


@pytest.fixture(scope="session")
def handed_out(lab_root: Path) -> None:
    for notebook in NOTEBOOKS:  # replace files that an earlier test may have left
        shutil.copy(notebook, lab_root / "work")


PARAMS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.full] * (path.stem != SHORT))
    for path in NOTEBOOKS
]


@pytest.mark.usefixtures("handed_out")
@pytest.mark.parametrize("notebook", PARAMS)
def test_notebook_runs_with_switches_and_no_requests(lab_page: LabPage, notebook: Path) -> None:
    lab_page.open(f"work/{notebook.name}")
    lab_page.run_all()
    assert lab_page.errors() == []
    cells = lab_page.cells()
    assert all(cell["count"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert complaints(outputs) == []
    assert {status for _, status in verdicts(outputs)} <= {"todo"}
    assert len(verdicts(outputs)) == notebook.read_text("utf-8").count("cu.check(")
    if notebook.stem[:2] in WITH_SWITCHES:
        assert lab_page.switch_timelines() > 0
    assert lab_page.trouble() == []
