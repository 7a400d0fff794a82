"""Every part of the session on a GPU starts without one, and a session keeps what it found."""

import json
import zipfile

import gpu_parts
import gpu_runs
import gpu_wild
import nbformat
import pytest
import run
import torch
from gpu_checks import CHECKS

from course_utils.teaching.exercise import VERDICT_MIME
from keepfed.measure.exchange.chrome import load_chrome


def findings(part, folder, *only):
    """Run a part on an emulated device, and return what it saved, as words by name."""
    names = [word for name in only for word in ("--only", name)]
    failures = run.main(["--here", "--emulated", "--out", str(folder), part, *names])
    found = json.loads((folder / "notes" / f"{part}.json").read_text())["found"]
    assert failures == sum("failed" in entry for entry in found.values())

    def words(entry):
        return entry.get("found") or entry.get("failed") or f"NOT RUN: {entry['not run']}"

    return {name: words(entry) for name, entry in found.items()}


STARTS = {  # a part attempts these, and finds something like this
    "wild": (["pin_memory_device", "image_loader"], ["NOT RUN: needs CUDA", "batches right"]),
    "cards": ([], ["8 batches"]),
    "checks": ([], ["8 types", "without a wait 20 of 20 wrong", "NOT RUN: needs CUDA"]),
    "loops": (["naive"], ["busy for"]),
}


@pytest.mark.slow
def test_parts_start_without_a_gpu(tmp_path):
    found = {part: findings(part, tmp_path, *only) for part, (only, _) in STARTS.items()}
    for part, (_, wanted) in STARTS.items():
        assert "failed" not in (words := str(found[part])), words
        assert all(text in words for text in wanted), words
    assert [*found["checks"]] == [check.__name__ for check in CHECKS]
    recording = tmp_path / "emulated-h200-naive-measured.json"
    about = json.loads(recording.read_text())["otherData"]
    assert about["loop"]["load_ms"] == 40
    assert {"gpu", "driver", "torch", "date", "command"} <= set(about)
    spans = load_chrome(recording).spans
    assert [span.lane for span in spans].count("gpu") == 25
    assert min(span.start_ns for span in spans) >= 0


@pytest.mark.full
def test_all_programs_and_loops_run_without_a_gpu(tmp_path):
    for part, names in (("wild", gpu_wild.WILD), ("loops", ["naive", "pageable", "augmentation"])):
        found = findings(part, tmp_path, *names)
        assert len(found) == len(names)
        assert "Error" not in str(found), found


TODO = {VERDICT_MIME: {"exercise": "1.1", "status": "todo"}}
NOTEBOOKS = {  # the cells of a notebook, and the line about it
    "good": (["1 + 1", "raise ValueError  # on purpose"], "ok, 2 cells"),
    "wrong": (["x = 1", "1 / 0", "y", "x"], "cell 2 (1 / 0): ZeroDivisionError: division by zero"),
    "bare": (["import nosuchlib"], "NOT RUN: No module named 'nosuchlib'"),
    "warns": (["import warnings\nwarnings.warn('old')"], "UserWarning: old"),
    "solutions/early": ([f"display({TODO}, raw=True)"], "cell 1: check 1.1 says todo"),
}


@pytest.mark.slow
def test_each_notebook_gets_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_runs, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(gpu_runs, "AT_ONCE", 2)
    (tmp_path / "notebooks/solutions").mkdir(parents=True)
    for name, (sources, _) in NOTEBOOKS.items():
        notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, sources)])
        for cell in notebook.cells:
            cell.metadata["tags"] = ["raises-exception"] * ("on purpose" in cell.source)
        nbformat.write(notebook, tmp_path / f"notebooks/{name}.ipynb")
    found = findings("notebooks", tmp_path)
    for name, (_, line) in NOTEBOOKS.items():
        _, solved, title = name.rpartition("solutions/")
        assert line in found[title + ", solved" * bool(solved)], found
    assert "cell 3 (y): NameError" in found["wrong"]  # the cells after an error run too
    assert "ZeroDivisionError" in (tmp_path / "notebooks/wrong.txt").read_text()


TESTS = """
def test_good(): pass
def test_wrong(): assert 1 + 1 == 3, "the sum is wrong"
def test_bare(): import nosuchlib
"""


@pytest.mark.slow
def test_each_failed_test_gets_one_line(tmp_path, capfd):
    (tmp_path / "test_sums.py").write_text(TESTS)
    arguments = ["tests", "--emulated", "--only", str(tmp_path / "test_sums.py")]
    assert run.main([*arguments, "--out", str(tmp_path)]) == 1
    printed = capfd.readouterr().out
    assert "FAILED: AssertionError: the sum is wrong | assert (1 + 1) == 3" in printed
    assert "NOT RUN: No module named 'nosuchlib'" in printed
    assert "exit status 1, {'passed': 1, 'failed': 2}" in printed


CHILD = """
import os, sys, time
from pathlib import Path
part, out = sys.argv[1], Path(sys.argv[sys.argv.index("--out") + 1])
print(f"  in {part}", flush=True)
if part == "loops":
    (out / "h200-naive-measured.json").write_text("{}")
    sys.exit(2)
if part == "checks":
    os.abort()
if part == "wild":
    time.sleep(600)
"""


def test_crash_and_hang_count_as_failures_and_results_are_packed(monkeypatch, tmp_path):
    (tmp_path / "run.py").write_text(CHILD)
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "LEAST_S", 0.1)
    monkeypatch.setenv("OUT", str(tmp_path))
    out = tmp_path / "out"
    parts = ["loops", "checks", "wild", "cards"]
    assert run.main([*parts, "--out", str(out), "--minutes", "0.05"]) > 2
    with zipfile.ZipFile(out / run.PACK) as packed:
        assert set(packed.namelist()) == {"h200-naive-measured.json", "report.txt"}
        report = packed.read("report.txt").decode()
    assert [part for part in parts if f"in {part}" in report] == parts
    assert "wild was ended by signal 9" in report
    assert (out / "h200-naive-measured.json").is_file()  # the folder that notebook 09 uses
    assert (tmp_path / "report.txt").read_text() == report


def test_missing_time_gpu_and_part_are_reported(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run.main(["loops", "--minutes", "0", "--out", str(tmp_path)]) == 0
    assert run.main(["--here"]) == 1
    with pytest.raises(SystemExit):
        run.main(["speed"])
    printed = capsys.readouterr()
    assert "There is no time left for loops" in printed.out
    assert "add --emulated" in printed.out
    assert "There is no part 'speed'. Choose from notebooks" in printed.err
    assert list(run.PARTS) == list(gpu_parts.PARTS)
