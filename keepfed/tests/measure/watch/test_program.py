"""Programs that `keepfed watch` runs: most need no torch, those that do take seconds."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from keepfed import command
from keepfed.measure.watch import program, run_watched
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.timing import failsafe
from keepfed.measure.watch.timing.ring_file import RingFile, read_all
from tests.fixtures import PROJECT, run_python
from tests.measure.watch import handmade, train

TRAIN = Path(train.__file__)
KEEPFED = [sys.executable, "-m", "keepfed.command"]
PIPES: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
PIPES["env"] = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(code: str, out: Path) -> int:
    return run_watched([sys.executable, "-c", code], out)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals and permissions")
def test_watch_ends_as_a_shell_does_and_says_why_nothing_was_seen(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    seen = "import os; open(os.environ['KEEPFED_WATCH'] + '/7.process', 'w');"
    gone = "import os, shutil; shutil.rmtree(os.environ['KEEPFED_WATCH'])"
    for code, ends, said in (
        ("pass", 0, "No Python process imported torch. If your training runs in a container"),
        ("raise SystemExit(3)", 3, "ended with exit code 3 before a Python process imported torch"),
        ("import os; os.kill(os.getpid(), 15)", 143, "ended with exit code 143"),
        (seen, 0, "No DataLoader returned a batch. This program builds its batches itself"),
        (f"{seen} raise SystemExit(5)", 5, "with exit code 5 before a DataLoader returned a batch"),
        (gone, 0, ""),
    ):
        assert run(code, tmp_path / "out") == ends
        errors = " ".join(capfd.readouterr().err.split())
        assert said in errors
        assert errors.count("keepfed watch: ") == bool(said)
        assert not (tmp_path / "out").exists()
    (tmp_path / "text").touch()
    for name, ends in ("no-such-program", 127), (str(tmp_path / "text"), 126):
        assert command.main(["watch", name]) == ends
        assert "Could not start" in capfd.readouterr().err


def test_sitecustomize_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = "import sys; raise SystemExit(sys.theirs + sum('keepfed-watch' in p for p in sys.path))"
    assert run(asked, tmp_path) == 1


def test_command_line_accepts_program_with_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def note(program: list[str], out: Path, **options: Any) -> int:
        ran.append((program, out.name, [name for name in options if options[name]]))
        return 7

    monkeypatch.setattr("keepfed.measure.watch.run_watched", note)
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert command.main(["watch", "python", "train.py", "--lines", "--out", "x"]) == 7
    assert command.main(["watch", "--lines", "--json", "--out", "y", "torchrun", "-m", "a"]) == 7
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert command.main(["watch", "--fail-above", "20", "-m", "package.train", "--lr", "1"]) == 7
    assert ran == [
        (["python", "train.py", "--lines", "--out", "x"], "keepfed-watch", []),
        (["torchrun", "-m", "a"], "y", ["lines", "as_json"]),
        ([sys.executable, "-m", "package.train", "--lr", "1"], "keepfed-watch-3", ["fail_above"]),
    ]
    for verb in "watch", "audit":
        assert command.main([verb]) == 2
        assert f"Example: keepfed {verb} python" in capsys.readouterr().err


def _write_record(file: Path) -> None:
    """Write the record of a loop that loses 80 % of its time."""
    made = handmade.loop(count=60)
    record = RingFile(file, made.about)
    record.totals.waited_ns, record.totals.worked_ns = made.totals.waited_ns, made.totals.worked_ns
    for each in made.iterations:
        record.add(each, made.fetches[each.number])


def test_watch_fails_if_too_much_time_is_lost(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    _write_record(tmp_path / "1-0.watched")
    code = "import os, shutil, sys; shutil.copy(sys.argv[1], os.environ['KEEPFED_WATCH']);"
    for limit, ends, expected in (("79.5", 0, 1), ("80.5", 0, 0), ("20", 7, 7), (None, 0, 0)):
        words = ["--out", str(tmp_path / "out"), sys.executable, "-c", f"{code} sys.exit({ends})"]
        limited = ["--fail-above", limit] if limit else []
        assert command.main(["watch", *limited, *words, str(tmp_path / "1-0.watched")]) == expected
        message = f"80 % of the time was lost, more than {limit} %."
        assert (message in capfd.readouterr().err) == (limit in ("79.5", "20"))


def test_programs_that_end_together_each_get_a_report_without_torch(tmp_path: Path) -> None:
    _write_record(tmp_path / "1-0.watched")
    code = (
        "import sys; from keepfed.command import main; code = main(sys.argv[1:])\n"
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    ends = (
        "import os, shutil, sys, time; shutil.copy(sys.argv[1], os.environ['KEEPFED_WATCH'])\n"
        "while time.time() < float(sys.argv[2]): time.sleep(0.01)"
    )
    rest = ["--json", sys.executable, "-c", ends, str(tmp_path / "1-0.watched")]
    watch, end = [sys.executable, "-c", code, "watch", *rest], str(time.time() + 3)
    pipes: Any = {"stdout": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen([*watch, end, name], cwd=tmp_path, **pipes) for name in "abc"]
    reports = [json.loads(one.communicate(timeout=100)[0]) for one in runs]
    assert [one.returncode for one in runs] == [0, 0, 0]
    folders = [Path(report["page"]).parent for report in reports]
    assert {*map(str, folders)} == {"keepfed-watch", "keepfed-watch-2", "keepfed-watch-3"}
    for name, report in zip(folders, reports, strict=True):
        folder = tmp_path / name
        assert (folder / ".gitignore").read_text() == "*\n"
        assert json.loads((folder / "report.json").read_text("utf-8")) == report
        assert report["loaders"][0]["finding"]["cause"] == "storage"
    assert {report["command"][-1] for report in reports} == {*"abc"}


@pytest.mark.skipif(sys.platform == "win32", reason="other paths")
def test_watched_program_sees_no_package_of_keepfed(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom importlib.util import find_spec\n"
        "names = 'torch', 'numpy', 'psutil', 'course_utils', 'tests', 'keepfed'\n"
        "print(*filter(find_spec, names), sys.path)\n"
        "own = [m for name, m in sys.modules.items() if name.startswith('keepfed.')]\n"
        "values = [v for m in own for v in vars(m).values() if hasattr(v, '__code__')]\n"
        "codes = [v.__code__ for v in values if v.__module__.startswith('keepfed')]\n"
        "print(len(codes) > 9, {code.co_filename[0] for code in codes}, file=sys.stderr)\n"
    )
    command = [tmp_path / "venv" / "bin" / "python", script]
    variables = dict(os.environ), prepare(tmp_path)
    plain, watched = (
        subprocess.run(command, check=True, **{**PIPES, "env": env}) for env in variables
    )
    assert watched.stdout == f"keepfed {plain.stdout}"
    # coverage counts no file whose name begins with "<"
    assert (plain.stderr, watched.stderr) == ("False set()\n", "True {'<'}\n")


def test_error_in_the_report_costs_only_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.delattr(program, "read_all")
    monkeypatch.setattr(failsafe, "_errors", [])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert run("raise SystemExit(5)", tmp_path / "out") == 5
    assert "watch: Could not create the report (NameError: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def training(*arguments: str, launcher: str = "") -> list[str]:
    return [sys.executable, *launcher.split(), str(TRAIN), *arguments]


def started(command: list[str], out: Path) -> subprocess.Popen[str]:
    watch = [*KEEPFED, "watch", "--out", str(out), *command]
    return subprocess.Popen(watch, start_new_session=True, **PIPES)


OTHERS = [pytest.param(n, marks=pytest.mark.full) for n in ("kill", "interrupt", "terminate")]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["raise", *OTHERS])
def test_report_is_written_however_training_ends(ending: str, tmp_path: Path) -> None:
    rest = ["forever"] if ending in ("interrupt", "terminate") else [ending]
    # Without workers, because Python loses an interrupt during a fork, watched or not.
    workers = 0 if ending == "interrupt" else 2
    watched = started(training(str(workers), *rest), tmp_path)
    for line in watched.stdout:  # the script prints a line after each epoch
        if line.startswith("epoch 3"):
            break
    if ending == "interrupt":
        os.killpg(watched.pid, signal.SIGINT)  # as Ctrl-C does
    if ending == "terminate":
        watched.send_signal(signal.SIGTERM)
    _, errors = watched.communicate(timeout=120)
    code = {"raise": 1, "kill": 137, "terminate": 143}.get(ending)
    assert watched.returncode == code or (code is None and watched.returncode in (1, 130))
    told = rf"^Numbers, batch 4, {workers or 'no'} workers, at train\.py:\d+\n  \d\d+ batches in"
    assert re.search(told, errors, re.M)
    assert (tmp_path / "report.html").stat().st_size < 200_000
    assert '"traceEvents"' in (tmp_path / "trace.json").read_text()


@pytest.mark.full
def test_watch_finds_slow_rank_and_keeps_output(tmp_path: Path) -> None:
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node=2"
    command = training("1", "slow rank 1", launcher=torchrun)
    said, errors = started(command, tmp_path).communicate(timeout=240)
    assert "Rank 1 delays the others" in errors
    assert re.search(r"^  rank 0: .*\n(.*\n)+  rank 1: ", errors, re.M)
    plain = subprocess.run(command, check=True, **PIPES)
    assert sorted(said.splitlines()) == sorted(plain.stdout.splitlines())
    assert said.count("epoch") == 8


@pytest.mark.slow
def test_watched_script_has_equal_losses(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    watched = run_python(TRAIN, "1", env=prepare(tmp_path))
    train.main(1, "")
    assert watched.stdout == capsys.readouterr().out != ""
    (seen,) = read_all(tmp_path)
    assert (seen.totals.iterations, seen.totals.epochs, seen.totals.cores > 0) == (96, 4, True)


@pytest.mark.slow
def test_lines_of_a_watched_program_are_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "from tests.measure.stacks.slow_dataset import Slow, step\n"
        "if __name__ == '__main__':\n"
        "    for batch in DataLoader(Slow(), 8, num_workers=2):\n"
        "        step(batch)\n",
        "utf-8",
    )
    words = "watch", "--lines", "--out", "seen", script
    environment = os.environ | {"PYTHONPATH": PROJECT}
    ran = run_python("-m", "keepfed.command", *words, cwd=tmp_path, env=environment)
    said = " ".join(ran.stderr.split())
    assert "in `time.sleep`, at slow_dataset.py:16" in said, said
    assert (tmp_path / "seen" / "report.html").exists()
