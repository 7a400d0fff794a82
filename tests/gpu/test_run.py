"""The session on a GPU finishes after any failure, and packs all results."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import gpu_checks
import gpu_loops
import gpu_parts
import gpu_probes
import gpu_training
import pytest
import run
import torch


def broken(*arguments, **keywords):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def missing(*arguments, **keywords):
    raise ModuleNotFoundError("No module named 'PIL'")


WORK_OF = {
    "checks": (gpu_checks, "CHECKS"),
    "loops": (gpu_loops, "compare"),
    "probes": (gpu_probes, "PROBES"),
    "training": (gpu_training, "train"),
    "tests": (gpu_parts, "succeeds"),
    "races": (gpu_parts, "succeeds"),
    "profile": (gpu_checks, "profiled"),
    "notebooks": (gpu_parts, "succeeds"),
}


def test_parts_continue_after_failures_and_report_them(monkeypatch, tmp_path):
    pytest.importorskip("ipykernel")
    for part, (module, name) in WORK_OF.items():
        for fails in (broken, missing) if part == "checks" else (broken,):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, [fails, fails] if name.isupper() else fails)
                options = ["--here", "--emulated", "--out", str(tmp_path), "--images", "nowhere"]
                failures = run.main([*options, part])
            notes = json.loads((tmp_path / "notes" / f"{part}.json").read_text())
            found = notes["found"].values()
            if fails is broken:
                assert failures >= len(found) > 0, part
                assert all("RuntimeError: CUDA error" in finding["failed"] for finding in found)
            else:
                assert failures == 0, part
                assert all(one["not run"] == "No module named 'PIL'" for one in found)


CHILD = """
import os, sys, time
from pathlib import Path
part, out = sys.argv[1], Path(sys.argv[sys.argv.index("--out") + 1])
print(f"  in {part}")
if part == "loops":
    (out / "h200-naive-measured.json").write_text("{}")
    sys.exit(2)
if part == "probes":
    os.abort()
if part == "training":
    time.sleep(600)
"""


def test_crash_and_hang_count_as_failures_and_results_are_packed(monkeypatch, tmp_path):
    (tmp_path / "run.py").write_text(CHILD)
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setitem(run.PARTS, "training", 1)
    out = tmp_path / "out"
    parts = ["loops", "probes", "training", "races"]
    assert run.main([*parts, "--out", str(out)]) > 2
    with zipfile.ZipFile(out / run.PACK) as packed:
        assert set(packed.namelist()) == {"h200-naive-measured.json", "report.txt"}
        report = packed.read("report.txt").decode()
    assert [part for part in parts if f"in {part}" in report] == parts
    assert "training was ended by signal 9" in report
    assert (out / "h200-naive-measured.json").is_file()  # the folder that notebook 09 uses


def test_session_without_time_left_starts_no_part(tmp_path, capsys):
    assert run.main(["loops", "--minutes", "0", "--out", str(tmp_path)]) == 0
    assert "There is no time left for loops" in capsys.readouterr().out


def test_missing_gpu_and_unknown_part_are_reported(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run.main(["--here"]) == 1
    assert "add --emulated" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["speed"])
    assert "There is no part 'speed'. Choose from checks" in capsys.readouterr().err


def test_parts_have_one_order():
    assert list(run.PARTS) == list(gpu_parts.PARTS)


ON_A_BARE_MACHINE = """
import sys, runpy, numpy, torch

class Nothing:
    there = {*sys.stdlib_module_names, *"course_utils data_scripts keepfed torch numpy".split()}
    ours = {path.stem for path in __import__("pathlib").Path(sys.argv[1]).parent.glob("*.py")}
    of_torch = {"torchgen", "sympy", "mpmath", "fsspec", "jinja2", "networkx"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.there | self.ours | self.of_torch:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Nothing())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.full
def test_session_runs_with_only_torch_and_numpy(tmp_path):
    script = str(Path(run.__file__))
    parts = [part for part in run.PARTS if part not in ("loops", "spread")]  # both take real time
    command = [sys.executable, "-c", ON_A_BARE_MACHINE, script, "--here", "--emulated", *parts]
    found = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    not_run = [line for line in found.stdout.splitlines() if "NOT RUN" in line]
    assert 3 <= len(not_run) <= 10  # review, cards, training, tests and more
    for part in ("checks", "probes", "races", "profile"):
        assert (tmp_path / "notes" / f"{part}.json").is_file()
