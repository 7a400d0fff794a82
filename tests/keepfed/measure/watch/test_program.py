"""Programs that `keepfed watch` runs: most need no torch, those that do take seconds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils.command import cli
from keepfed.errors import KeepfedError
from keepfed.measure.watch import program, run_watched
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.timing.ring_file import (
    PROCESS,
    FieldIndex,
    ProgramRun,
    RingFile,
    Totals,
    read_all,
)
from tests.keepfed.measure.watch import train

TRAIN = Path(train.__file__)


def run(code: str, out: Path) -> int:
    return run_watched([sys.executable, "-c", code], out)


@pytest.mark.parametrize("code", [0, 3])
def test_watch_returns_exit_code_of_program(
    code: int, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    assert run(f"raise SystemExit({code})", tmp_path / "out") == code
    assert "No Python process imported torch" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_watch_returns_exit_code_of_signal(tmp_path: Path) -> None:
    assert run("import os; os.kill(os.getpid(), 15)", tmp_path) == 128 + 15


def test_missing_program_raises_error(tmp_path: Path) -> None:
    with pytest.raises(KeepfedError, match=r"^Could not start no-such-program \(No such file"):
        run_watched(["no-such-program"], tmp_path)


def test_sitecustomize_of_program_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = "import sys; raise SystemExit(sys.theirs + sum('keepfed-watch' in p for p in sys.path))"
    assert run(asked, tmp_path) == 1


def test_command_line_accepts_program_with_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def note(program: list[str], out: Path, *, live: bool, lines: bool, price: float) -> int:
        ran.append((program, out.name, live or lines or price))
        return 7

    monkeypatch.setattr("keepfed.measure.watch.run_watched", note)
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["watch", "python", "train.py", "--live", "--out", "x"]) == 7
    assert cli.main(["watch", "--live", "--out", "y", "torchrun", "-m", "a"]) == 7
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert cli.main(["watch", "--price", "2.5", "-m", "package.train", "--lr", "1"]) == 7
    assert ran == [
        (["python", "train.py", "--live", "--out", "x"], "keepfed-watch", 0.0),
        (["torchrun", "-m", "a"], "y", True),
        ([sys.executable, "-m", "package.train", "--lr", "1"], "keepfed-watch-3", 2.5),
    ]
    assert cli.main(["watch"]) == 1


def test_watch_process_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from course_utils.command import cli\n"
        "code = cli.main(['watch', '--out', sys.argv[1], sys.executable, '-c', 'pass'])\n"
        "assert not {'torch', 'numpy'} & {*sys.modules}; sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_live_line_shows_progress_since_previous_line(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    live = program.Live(tmp_path)
    live.show()
    about = {"rank": 1, "ranks": 2, "pid": 5, "at": "train.py:3"}
    kept = RingFile(tmp_path / "5-0.watched", about)
    for place, value in enumerate(
        Totals(iterations=10, waited_ns=30_000_000, worked_ns=10_000_000)
    ):
        kept.figures[place] = value
    live.show()
    kept.figures[FieldIndex.ITERATIONS], kept.figures[FieldIndex.WAITED] = 14, 38_000_000
    live.show()
    lines = [re.sub(r"^\S+ ", "", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "no new batch",
        "rank 1 train.py:3: 10 batches, 4.0 ms each, 75 % waiting",
        "rank 1 train.py:3: 14 batches, 2.0 ms each, 100 % waiting",
    ]


def test_report_on_torch_without_loader(tmp_path: Path) -> None:
    (tmp_path / f"7{PROCESS}").write_text("train.py")
    assert program._build_report(tmp_path, tmp_path, ProgramRun()).startswith(
        "No DataLoader returned a batch"
    )


COURSE = "import sys\nfrom course_utils.command import cli\nsys.exit(cli.main(sys.argv[1:]))"
TORCH_SEEN = "import os; open(os.environ['KEEPFED_WATCH'] + '/7.process', 'w'); raise SystemExit(5)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.modules['numpy'] = None", "(ModuleNotFoundError: import of numpy halted"),
        ("import os, keepfed.measure.watch.program as p; del p.read_all", "(NameError: "),
    ],
)
def test_record_is_saved_if_report_fails(before: str, said: str, tmp_path: Path) -> None:
    watch = [sys.executable, "-c", f"import sys; {before}\n{COURSE}", "watch", "--out"]
    for out in ("out", "out-2"):  # the second run does not touch the first
        rest = [str(tmp_path / "out"), sys.executable, "-c", TORCH_SEEN]
        run = subprocess.run([*watch, *rest], capture_output=True, text=True)
        assert (run.stdout, run.returncode) == ("", 5)
        assert said in run.stderr
        assert f"keepfed watch --report {tmp_path / out}\n" in run.stderr
        assert {path.name for path in (tmp_path / out).iterdir()} == {"7.process", program.PROGRAM}


def test_saved_record_can_be_reported_later(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["watch", "--report", str(tmp_path)]) == 1
    assert "contains no record. Use the folder" in capsys.readouterr().err
    (tmp_path / f"7{PROCESS}").touch()
    assert cli.main(["watch", "--report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("No DataLoader returned a batch")


def test_watch_keeps_results_of_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert program.unused_folder(tmp_path / "out") == tmp_path / "out"
    (tmp_path / "out" / "trace.json").touch()
    (tmp_path / "out-2").touch()
    assert program.unused_folder(tmp_path / "out") == tmp_path / "out-3"


@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_program_runs_unwatched_on_full_disk(tmp_path: Path) -> None:
    full = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n{COURSE}"
    ending = [sys.executable, "-c", "print(1); raise SystemExit(5)"]
    watch = [sys.executable, "-B", "-c", full, "watch", "--out", str(tmp_path / "out"), *ending]
    run = subprocess.run(watch, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("1\n", 5)
    (line,) = run.stderr.splitlines()
    assert line.startswith("keepfed watch: The program continues unwatched (")


def started(*arguments: str, out: Path, ranks: int = 1) -> subprocess.Popen[str]:
    course = [sys.executable, "-m", "course_utils.command.cli", "watch", "--out", str(out)]
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    launch = [*course, sys.executable, *(["-m", *torchrun] if ranks > 1 else [])]
    return subprocess.Popen(
        [*launch, str(TRAIN), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.full
@pytest.mark.parametrize("ending", ["raise", "kill", "interrupt", "terminate"])
def test_report_is_written_however_training_ends(ending: str, tmp_path: Path) -> None:
    rest = ["forever"] if ending in ("interrupt", "terminate") else [ending]
    # Without workers, because Python loses an interrupt during a fork, watched or not.
    workers = 0 if ending == "interrupt" else 2
    watched = started(str(workers), *rest, out=tmp_path)
    assert watched.stdout is not None
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
def test_watch_finds_slow_rank_and_keeps_output(
    tmp_path: Path,
) -> None:
    said, errors = started("1", "slow rank 1", out=tmp_path, ranks=2).communicate(timeout=240)
    assert "Rank 1 delays the others" in errors
    assert re.search(r"^  rank 0: .*\n(.*\n)+  rank 1: ", errors, re.M)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    plain = subprocess.run(
        [*torchrun, str(TRAIN), "1", "slow rank 1"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert sorted(said.splitlines()) == sorted(plain.stdout.splitlines())
    assert said.count("epoch") == 8


@pytest.mark.slow
def test_watched_script_computes_identical_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    watched = subprocess.run(
        [sys.executable, str(TRAIN), "1"], capture_output=True, text=True, env=prepare(tmp_path)
    )
    train.main(1, "")
    assert watched.stdout == capsys.readouterr().out != ""
    (seen,) = read_all(tmp_path)
    assert (seen.totals.iterations, seen.totals.epochs, seen.totals.cores > 0) == (96, 4, True)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_lines_of_a_watched_program_are_named(tmp_path: Path, workers: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "from tests.keepfed.measure.stacks.slow_dataset import Slow, step\n"
        "if __name__ == '__main__':\n"
        f"    for batch in DataLoader(Slow(), 8, num_workers={workers}):\n"
        "        step(batch)\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "keepfed.command", "watch", "--lines", "--out", "seen"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    ran = subprocess.run(
        [*command, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    said = " ".join(ran.stderr.split())
    assert "is waiting in `time.sleep`, called at slow_dataset.py:16" in said, said
    assert (tmp_path / "seen" / "report.html").exists()
