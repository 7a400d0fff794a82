"""Inspecting workers from outside: live output, or a recording with a reason."""

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from course_utils.stories import process_tools
from course_utils.stories.process_tools import cpu_use, disk_use, hot_lines, worker_pids

RAW = """thread (0x7F): "MainThread";<module> (a.py:1);read (a.py:7) 30
thread (0x7F): "MainThread";<module> (a.py:1);decode (a.py:9) 10
thread (0x80): "QueueFeederThread";wait (threading.py:1) 40
"""


@pytest.mark.slow
def test_tools_show_cpu_disk_and_lines_of_workers() -> None:
    numbers = TensorDataset(torch.arange(64))
    batches = iter(DataLoader(numbers, batch_size=4, num_workers=2, persistent_workers=True))
    next(batches)
    workers = worker_pids()
    assert len(workers) == 2
    for look in (cpu_use(seconds=0.1), disk_use(seconds=0.1)):
        assert "It shows" in repr(look)
        assert "It does not show" in repr(look)
        if not look.note:
            assert all(str(pid) in look.shows for pid in (os.getpid(), *workers))
    assert " %  " in hot_lines(workers[1], seconds=1).shows
    assert len(list(batches)) == 15


def forbidden(command: list[str], **_: object) -> Any:
    raise subprocess.CalledProcessError(1, command, stderr="Error: Permission Denied\nmore")


def missing(*_: object, **__: object) -> None:
    raise FileNotFoundError


def test_failed_py_spy_shows_recording_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for run, reason in (forbidden, "Error: Permission Denied"), (missing, "FileNotFoundError"):
        monkeypatch.setattr(process_tools.subprocess, "run", run)
        look = hot_lines(1)
        assert "Recorded" in look.shows
        assert f"({reason}). The output below is a recording" in look.note
        assert look.note in repr(look)
        assert reason in look._repr_html_()


def test_system_without_io_counters_shows_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_tools, "sys", SimpleNamespace(platform="darwin"))
    look = disk_use()
    assert "Only Linux" in look.note
    assert "worker 1" in look.shows


def test_only_main_thread_counts_and_hottest_line_is_first() -> None:
    hottest = ["  75 %  read (a.py:7)", "  25 %  decode (a.py:9)"]
    assert process_tools._hottest(RAW).splitlines() == hottest
