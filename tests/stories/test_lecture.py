"""Lecture demos: a live run returns a finding, and after any failure the recording is shown."""

import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from course_utils import paths
from course_utils.stories.lecture import demos, load_finding, show

# the package has a function of the same name
SHOW = import_module("course_utils.stories.lecture.show")
RECORDED = paths.REPO / "notebooks/recordings/demos"
SAID = {  # the result of a demo on every machine
    "duplicates": "768 events, 192 of them distinct: 75 %",
    "clinic": "A waits for the storage; B waits for nothing",
}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """Return the folder of a project that contains only the recordings."""
    shutil.copytree(RECORDED, tmp_path / "notebooks/recordings/demos")
    monkeypatch.setattr(paths, "REPO", tmp_path)
    monkeypatch.setattr(SHOW, "data_path", lambda *name: tmp_path)
    return tmp_path


def test_every_demo_has_a_module_and_a_recording():
    folder = paths.REPO / "course_utils/stories/lecture" / "programs"
    modules = {path.stem for path in folder.glob("[!_]*.py")} - {"loop"}
    assert modules == set(demos()) == {path.stem for path in RECORDED.glob("*.json")}


def test_recording_is_small_and_becomes_one_page():
    for name, title in demos().items():
        path = RECORDED / f"{name}.json"
        assert path.stat().st_size <= 60_000, name
        finding = load_finding(path)
        page = finding.page(title, recorded=True)
        assert f"Recorded on {finding.about['machine']}" in page, name
        assert finding.about["command"] == f"course demo {name}"
        assert finding.sentence in page.replace("&#x27;", "'"), name
        assert not re.search(r'(src|href)="(?!data:)', page), name
        assert re.search(SAID.get(name, ""), finding.sentence), name


def test_failed_demo_shows_recording_and_reason(project, monkeypatch):
    endless, stopped = "import time; time.sleep(99)", "Stopped after 0.2 s, because it was still"
    for program, timeout, failure in (
        (endless, 0.2, f"{stopped} running."),
        ("raise OSError('no room')", 60, "Ended with an error (exit status 1) (OSError: no room)."),
    ):
        monkeypatch.setattr(SHOW, "_PROGRAM", program)
        page, said = show("wait", timeout=timeout)
        assert said.startswith(f"{failure} Here is its recording instead.\nRecorded on ")
        assert page == project / "work" / "demos" / "wait.html"
        assert "Recorded on" in page.read_text("utf-8")


@pytest.mark.full
@pytest.mark.parametrize("name", demos())
def test_live_demo_with_spawned_workers_gives_expected_result(name, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_START_METHOD", "spawn")
    path = tmp_path / "found.json"
    assert SHOW._run(name, path, 300) == ""
    assert re.search(SAID.get(name, ""), load_finding(path).sentence)
