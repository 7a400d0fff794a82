"""Lecture demos: a live run returns a finding, and after any failure the recording is shown."""

import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from course_utils import paths
from course_utils.command import cli
from course_utils.stories.lecture import Finding, demos, load_finding, show
from course_utils.stories.lecture.finding import save_finding
from keepfed.errors import KeepfedError
from keepfed.measure.simulate import Pipeline, simulate

SHOW = import_module(
    "course_utils.stories.lecture.show"
)  # the package has a function of the same name
RECORDED = paths.REPO / "notebooks/recordings/demos"
HANGS = "import threading; threading.Event().wait()"
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


def run_instead(monkeypatch, program: str) -> None:
    monkeypatch.setattr(SHOW, "_PROGRAM", program)


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


def test_saved_finding_is_restored_unchanged(tmp_path):
    trace = simulate(Pipeline(read_ms=6, step_ms=5, num_workers=2, steps=5, batch_size=8))
    finding = Finding("It is <so>.", {"two workers": trace}, [["a", "b"], ["1", "2"]])
    save_finding(finding, tmp_path / "it.json", machine="M", torch="1", command="c")
    (back,) = load_finding(tmp_path / "it.json").traces.values()
    assert back.spans == trace.spans
    assert back.summary().samples_per_s == trace.summary().samples_per_s
    assert back.note == "recorded, simulated"
    live = load_finding(tmp_path / "it.json", recorded=False)
    page = live.page("T", recorded=False)
    assert "It is &lt;so&gt;." in page
    assert "<td>2</td>" in page
    assert "Measured just now on M" in page
    assert "recorded" not in live.traces["two workers"].note


def test_failed_demo_shows_recording_and_reason(project, monkeypatch):
    for program, timeout, failure in (
        (HANGS, 0.2, "Stopped after 0.2 s, because it was still running."),
        ("raise OSError('no room')", 60, "Ended with an error (exit status 1) (OSError: no room)."),
    ):
        run_instead(monkeypatch, program)
        page, said = show("wait", timeout=timeout)
        assert said.startswith(f"{failure} Here is its recording instead.\nRecorded on ")
        assert page == project / "work" / "demos" / "wait.html"
        assert "Recorded on" in page.read_text("utf-8")


def test_interrupted_demo_shows_recording_and_live_demo_does_not(project, monkeypatch, capsys):
    def interrupted(*program, **limits):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SHOW, "run_demo", interrupted)
        assert cli.main(["demo", "wait", "--no-browser"]) == 0
    assert "The demo was interrupted. Here is its recording instead." in capsys.readouterr().out
    source = project / "notebooks/recordings/demos" / "cliff.json"
    run_instead(monkeypatch, f"import shutil; shutil.copy({str(source)!r}, {{path!r}})")
    page, said = show("wait")
    assert said == json.loads(source.read_text("utf-8"))["sentence"]
    assert "Measured just now" in page.read_text("utf-8")


def test_command_lists_demos_and_rejects_unknown_ones(project, capsys):
    assert cli.main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*demos()]
    assert all(re.match(r"\w+ +\d+ s  \w.*\?$", line) for line in lines)
    assert cli.main(["demo", "nothing"]) == 1
    assert "There is no demo 'nothing'. Choose one of: wait, cliff," in capsys.readouterr().err
    (project / "notebooks/recordings/demos" / "wait.json").unlink()
    with pytest.raises(KeepfedError, match="There is no recording 'demos/wait"):
        show("wait", recorded=True)


def test_showing_a_recording_does_not_import_torch(project):
    code = f"""
import sys
from importlib import import_module
from pathlib import Path
from course_utils import paths
paths.REPO = Path({str(project)!r})
from course_utils.command import cli
assert cli.main(["demo", "wait", "--recorded", "--no-browser"]) == 0
assert "torch" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("Recorded on ")
    assert (project / "work" / "demos" / "wait.html").is_file()


@pytest.mark.full
@pytest.mark.parametrize("name", demos())
def test_live_demo_with_spawned_workers_gives_expected_result(name, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_START_METHOD", "spawn")
    path = tmp_path / "found.json"
    assert SHOW._run(name, path, 300) == ""
    assert re.search(SAID.get(name, ""), load_finding(path).sentence)
