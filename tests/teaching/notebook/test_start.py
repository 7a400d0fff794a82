import multiprocessing
import random
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.command import cli
from course_utils.teaching.notebook import data_path, ready, start, start_workers
from keepfed.errors import KeepfedError


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record calls that would otherwise change this process for all later tests."""
    made: list[Any] = []
    monkeypatch.delenv("COURSE_START_METHOD", raising=False)
    for name, stand_in in {
        "set_start_method": lambda method, force: made.append(method),
        "set_forkserver_preload": made.append,
        "get_start_method": lambda allow_none: None,
    }.items():
        monkeypatch.setattr(multiprocessing, name, stand_in)
    monkeypatch.setattr(forkserver, "ensure_running", lambda: made.append("running"))
    monkeypatch.setattr("course_utils.hardware.machine.starting.modules_of_server", lambda: None)
    return made


@pytest.mark.skipif(sys.platform == "win32", reason="no forkserver there")
def test_preload_is_set_before_the_server_starts(calls: list[Any]) -> None:
    assert start_workers() == "forkserver"
    assert calls == ["forkserver", list(start.PRELOAD), "running"]
    # The server would silently ignore a missing module, and every worker would import it.
    assert all(find_spec(name) for name in start.PRELOAD)


def test_windows_sets_spawn_once(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert start_workers() == "spawn"
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "spawn")
    assert start_workers() == "spawn"
    assert calls == ["spawn"]


def test_invalid_start_method_is_reported_by_check_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COURSE_START_METHOD", "teleport")
    said = r"start method 'teleport'\. Set COURSE_START_METHOD"
    with pytest.raises(KeepfedError, match=said) as refused:
        start_workers()
    assert cli.main(["check"]) == 1
    assert capsys.readouterr().err == f"course: {refused.value}\n"


def test_ready_describes_the_machine_and_fixes_seeds(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "data_path", calls.append)
    drawn = set()
    for _ in range(2):
        ready("90")
        drawn.add((random.random(), torch.rand(1).item()))
        assert calls[-2:] == ["events", "images"]
        machine, accelerator = capsys.readouterr().out.splitlines()
        assert (machine[:7], "data of size S" in machine) == ("Ready: ", True)
        assert accelerator.startswith("Accelerator: ")
    assert len(drawn) == 1


def test_data_set_is_created_once_or_reported_with_a_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Sequence[str]] = []

    def main(argv: Sequence[str]) -> int:
        made.append(argv)
        if len(made) > 1:
            (tmp_path / "events-S" / "manifest.json").write_text("{}")
        return 2 - len(made)

    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.setattr("data_scripts.make_events.main", main)
    folder = tmp_path / "events-S"
    folder.mkdir()  # without a manifest, it is incomplete
    with pytest.raises(KeepfedError, match="Fix the problem shown above, then run `course data`"):
        data_path("events", "S")
    assert data_path("events", "S") == data_path("events", "S") == folder
    assert made == [["--size", "S", "--out", str(folder)]] * 2
    with pytest.raises(KeepfedError, match=r"no data set 'event'\. Choose one of events, images"):
        data_path("event")
