"""Errors in keepfed never reach the watched program."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from torch.torch_version import TorchVersion
from torch.utils.data import DataLoader

from keepfed.measure import hook
from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.loop import watch
from keepfed.measure.watch.timing import failsafe, observer, step_timer, watching, writer
from keepfed.measure.watch.timing.ring_file import RingFile
from tests.fixtures import run_python
from tests.measure.datasets import Broken, Numbers

TORCH = """
import sys
class DataLoader:
    def _get_iterator(self): return iter([1, 2])
    def __iter__(self): return self._get_iterator()
"""
ITERATORS = """
class _BaseDataLoaderIter:
    def __next__(self): return 0
"""
LOOP = "from torch.utils.data import dataloader as d\nprint([*d.DataLoader()]); raise SystemExit(3)"
FULL = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
REMOVED = "import os, shutil\nshutil.rmtree(os.environ['KEEPFED_WATCH'])\n"


_fails = Mock(side_effect=ZeroDivisionError("a bug in keepfed"))


@pytest.fixture(autouse=True)
def _no_error_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failsafe, "_errors", [])


@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_unwatchable_torch_is_imported(tmp_path: Path) -> None:
    package = tmp_path / "path" / "torch" / "utils" / "data"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    for before, torch, said in (
        (FULL, TORCH + ITERATORS, "File too large"),
        (REMOVED, TORCH + ITERATORS, "No such file or directory"),
        ("", TORCH, "_BaseDataLoaderIter"),
    ):
        (package / "dataloader.py").write_text(torch)
        records = tmp_path / said
        records.mkdir()
        environment = prepare(records)
        environment["PYTHONPATH"] += f":{tmp_path / 'path'}"
        run = run_python("-B", "-c", before + LOOP, env=environment)
        assert (run.stdout, run.returncode) == ("[1, 2]\n", 3)
        (line,) = run.stderr.splitlines()
        assert line.startswith("keepfed watch: The program continues unwatched (")
        assert said in line


TIMED = "_ask", "_receive", "_begin_counting", "_add_counted", "_begin_epoch"
METERED = "worker_started", "fetch_begins", "samples_made", "batch_made"
BUGS: list[tuple[Any, str]] = [
    (watching, "get_writer"),
    (watching, "_meter_of"),
    (observer, "Hook"),
    (step_timer, "pause"),
    *((step_timer.StepTimer, name) for name in TIMED),
    *((hook.FetchMeter, name) for name in METERED),
]


@pytest.mark.usefixtures("seen")
def test_no_bug_reaches_the_loop(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    for owner, name in BUGS:
        for workers in (0, 1) if owner is hook.FetchMeter else (0,):
            failsafe._errors.clear()
            with monkeypatch.context() as bug:
                bug.setattr(owner, name, _fails)
                loader = DataLoader(Numbers(80), 2, num_workers=workers)
                for _ in range(2):
                    batches = [batch.tolist() for batch in loader]
                    assert batches == [[2 * n, 2 * n + 1] for n in range(40)], name
                step_timer.write_down()
            said = capfd.readouterr().err.splitlines()
            lines = [line for line in said if line.startswith("keepfed watch: ")]
            assert len(lines) <= 1 + workers, name  # at most one line per process
            assert all("(ZeroDivisionError: a bug in keepfed)" in line for line in lines), name


@pytest.mark.usefixtures("seen")
def test_old_torch_is_unwatched(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("torch.__version__", TorchVersion("2.3.1"))
    assert [batch.tolist() for batch in DataLoader(Numbers(3))] == [[0], [1], [2]]
    (line,) = capfd.readouterr().err.splitlines()
    assert "continues unwatched (KeepfedError: keepfed needs torch 2.4 or newer, not" in line


@pytest.mark.usefixtures("seen")
def test_error_of_program_is_raised_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timer.StepTimer, "_handle_error", lambda *args: None)
    iterator = iter(DataLoader(Broken(), batch_size=1))
    with pytest.raises(LookupError, match="sample 5 is corrupt") as raised:
        list(iterator)
    assert raised.traceback[-1].name == "__getitem__"
    # An earlier test can leave an error that Python still handles. keepfed must not add another.
    assert raised.value.__context__ is sys.exc_info()[1]


@pytest.mark.parametrize("batches", [[1, 2], DataLoader([1, 2], batch_size=None)])
def test_watch_yields_batches_if_recording_fails(
    batches: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("keepfed.measure.watch.loop.records_folder", _fails)
    monkeypatch.setattr(writer, "records_folder", _fails)
    monkeypatch.setattr(writer, "_writers", [])
    assert [*watch(batches)] == [*watch(batches)] == [1, 2]
    assert capsys.readouterr().err.count("continues unwatched") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no blocks")
def test_ring_file_reserves_disk_space(tmp_path: Path) -> None:
    file = RingFile(tmp_path / "1.watched", {})
    state = (tmp_path / "1.watched").stat()
    assert 512 * state.st_blocks >= state.st_size > 300_000
    file.write_totals()
