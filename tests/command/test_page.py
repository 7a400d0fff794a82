import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from traitlets.config import Config

from course_utils.command import cli
from course_utils.command.page import as_page

CELLS = (
    "import course_utils as cu",
    "run = cu.simulate(cu.Pipeline(steps=8))",
    "from keepfed.measure.picture import Timeline\nTimeline({'naive': run, 'again': run})",
    "run.timeline()",
    "cu.predict('90a', 'How busy is the GPU?', unit='%')",
)


def notebook_of(path, *cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    nbformat.write(notebook, path)
    return notebook


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    path = folder / "00_executed.ipynb"
    notebook = notebook_of(path, *CELLS)
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    nbformat.write(notebook, path)
    return path


@pytest.mark.slow
def test_page_keeps_timelines_alive_and_loads_nothing(executed, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_HOME", str(executed.parents[1]))
    monkeypatch.chdir(executed.parent)
    assert cli.main(["page", str(executed)]) == 0
    assert "with 2 interactive timelines" in capsys.readouterr().out
    page = executed.with_suffix(".html").read_text("utf-8")
    assert page.count('class="course-timeline"') == 2 + page.count(".course-timeline")
    assert "Predict: How busy is the GPU?" in page
    assert re.findall(r'(?:src|href)="(https?:[^"]*)"', page) == []
    assert "widget-view+json" not in page


@pytest.mark.slow
def test_page_shows_still_pictures_without_stored_state(executed, tmp_path):
    content = nbformat.read(executed, as_version=4)
    del content.metadata["widgets"]
    nbformat.write(content, tmp_path / "still.ipynb")
    page, live = as_page(tmp_path / "still.ipynb")
    assert live == 0
    assert len(re.findall(r'<svg [^>]*class="ct"', page)) == 2


@pytest.mark.slow
def test_nbconvert_without_metadata_shows_images(executed):
    """The command that docs/troubleshooting.md names."""
    option = Config({"ClearMetadataPreprocessor": {"enabled": True}})
    for config, images in ((Config(), 0), (option, 2)):
        page, _ = HTMLExporter(config=config).from_filename(str(executed))
        assert len(re.findall(r"<img[^>]*svg\+xml;base64,", page)) == images


@pytest.mark.parametrize(
    ("cells", "said"),
    [((), "is not a notebook. Give the path"), (("1",), "has not been run. Run it in JupyterLab")],
)
def test_page_of_a_useless_file_reports_error(tmp_path, capsys, cells, said):
    path = tmp_path / "a.ipynb"
    if cells:
        notebook_of(path, *cells)
    else:
        path.write_text("{}")
    assert cli.main(["page", str(path)]) == 1
    assert said in capsys.readouterr().err


def test_page_finds_a_notebook_by_its_number(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    assert cli.main(["page", "3"]) == 1
    assert "There is no notebook 3 in" in capsys.readouterr().err
    notebook_of(tmp_path / "work" / "03_measure.ipynb", "1")
    assert cli.main(["page", "3"]) == 1
    assert "03_measure.ipynb has not been run" in capsys.readouterr().err
