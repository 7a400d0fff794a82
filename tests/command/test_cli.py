import os
import re
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from course_utils import paths
from course_utils.command import cli, installation, lab
from course_utils.command.installation import Checkup
from course_utils.teaching import notebook


def test_lab_copies_the_notebooks_and_serves_the_first_once_and_not_without_data(
    monkeypatch, tmp_path, capsys
):
    served = []

    @contextmanager
    def serve(root, notebook, **options):
        served.append(notebook)
        yield SimpleNamespace(url="http://1/lab", process=SimpleNamespace(wait=lambda: 0))

    (tmp_path / "notebooks").mkdir()
    first = tmp_path / "notebooks" / "00_start_here.ipynb"
    first.write_text('{"cells": []}')
    monkeypatch.setattr(paths, "REPO", tmp_path)
    missing = ["events", "images"]
    monkeypatch.setattr(notebook, "missing_data", missing.copy)
    monkeypatch.setattr(notebook, "make_data", lambda name: missing.remove(name) or 0)
    monkeypatch.setattr(lab, "serve", serve)
    monkeypatch.setattr(lab, "open_browser", lambda url: False)
    running = [None, "http://2/lab", None]
    monkeypatch.setattr(lab, "running", lambda state, notebook: running.pop(0))
    assert cli.main(["lab"]) == 0
    assert (tmp_path / "work" / "00_start_here.ipynb").exists()
    said = capsys.readouterr().out
    assert said.startswith("Step 2 of 3: creating the data of the first notebook.\nNew in ")
    assert "\nStep 3 of 3: opening the notebooks.\nJupyterLab: http://1/lab\n" in said
    assert served == ["work/00_start_here.ipynb"]
    assert "Open this address in your browser." in said
    (tmp_path / "work" / "00_start_here.ipynb").write_text("edited")
    first.write_text('{"cells": [{"cell_type": "markdown", "source": "newer"}]}')
    assert cli.main(["lab"]) == 0
    said = capsys.readouterr().out
    assert "Rename it to get the new version.\n" in said
    assert "http://2/lab" in said
    assert "Step" not in said
    missing.append("events")
    monkeypatch.setattr(notebook, "make_data", lambda name: 1)
    assert cli.main(["lab"]) == 1
    assert len(served) == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="ends processes without notice there")
def test_data_that_are_asked_to_stop_leave_nothing_half(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    with subprocess.Popen([sys.executable, "-m", "course_utils.command.cli", "data"]) as process:
        while not (tmp_path / ".events-S.unfinished" / "npz").exists():
            assert process.poll() is None
        process.terminate()
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == [".events-S.lock"]


def test_hand_out_copies_to_any_folder_and_keeps_what_was_edited(tmp_path, capsys):
    assert cli.main(["hand-out", str(tmp_path / "mine")]) == 0
    assert capsys.readouterr().out.endswith(f"The notebooks are in {tmp_path / 'mine'}.\n")
    edited = next((tmp_path / "mine").glob("00_*.ipynb"))
    edited.write_text("edited")
    assert cli.main(["hand-out", str(tmp_path / "mine")]) == 0
    assert edited.read_text() == "edited"


def test_data_are_made_in_the_size_asked_for_up_to_the_first_failure(monkeypatch, capsys):
    monkeypatch.setenv("COURSE_SIZE", "M")
    made = []

    def make_data(name):
        made.append((name, paths.data_size()))
        raise PermissionError(13, "denied", "/x")

    monkeypatch.setattr(notebook, "make_data", make_data)
    assert cli.main(["data", "--size", "S"]) == 1
    assert made == [("events", "S")]
    stderr = capsys.readouterr().err
    assert stderr.startswith("course: Writing to /x is not allowed. To fix this, move")
    assert stderr.count("\n") == 1


def test_check_shows_the_machine_and_tells_what_is_wrong_by_its_exit_code(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "not" / "there"))
    findings = [Checkup("python", "fine"), Checkup("widget", "broken", "mend it")]
    monkeypatch.setattr(installation, "findings", lambda: findings)
    assert cli.main(["check"]) == 1
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0].startswith("system")
    assert lines[-2] == "wrong  widget     broken -> mend it"
    assert lines[-1] == "Problems: 1. Each line above says how to fix one."
    assert f"(in {tmp_path})" in " ".join(printed.split())


def test_no_command_prints_the_help_within_60_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main([]) == 2
    with pytest.raises(SystemExit):
        cli.main(["demo", "--help"])
    printed = "".join(capsys.readouterr())
    assert "open the notebooks in JupyterLab" in printed
    assert max(map(len, printed.splitlines())) <= 60


def test_old_name_of_a_command_leads_to_its_new_name(capsys):
    for old, new in (("watch", "`keepfed watch`"), ("doctor", "`course check`")):
        assert cli.main([old, "x"]) == 2
        assert capsys.readouterr().err == f"course: `{old}` is now {new}.\n"


def test_output_fits_the_terminal_and_keeps_words_whole(monkeypatch, capsys):
    monkeypatch.setattr(installation, "findings", lambda: [Checkup("data", "a b " * 50)])
    for command in ["check"], ["demo"], ["demo", "x"]:
        texts = []
        for width in 1000, 60, 80:
            monkeypatch.setenv("COLUMNS", str(width))
            cli.main(command)
            texts.append(re.sub(r"\d", "", "".join(capsys.readouterr())))  # free memory changes
            assert max(map(len, texts[-1].splitlines())) <= width
        assert texts[0].split() == texts[1].split() == texts[2].split(), command
