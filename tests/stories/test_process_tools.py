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
    for shown in (cpu_use(seconds=0.1), disk_use(seconds=0.1)):
        assert shown.startswith("A rec") or all(str(p) in shown for p in (os.getpid(), *workers))
    assert " %  " in hot_lines(workers[1])
    assert len(list(batches)) == 15


def forbidden(command: list[str], **_: object) -> Any:
    raise subprocess.CalledProcessError(1, command, stderr="Error: Permission Denied\nmore")


def missing(*_: object, **__: object) -> None:
    raise FileNotFoundError


def test_recording_stands_in_for_what_the_system_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    for run, reason in (forbidden, "Error: Permission Denied"), (missing, "FileNotFoundError"):
        monkeypatch.setattr(process_tools.subprocess, "run", run)
        assert f"({reason}). This is a recording." in hot_lines(1)
        assert "Recorded" in hot_lines(1)
    monkeypatch.setattr(process_tools, "sys", SimpleNamespace(platform="darwin"))
    assert "worker 1" in disk_use()


def test_only_main_thread_counts_and_hottest_line_is_first() -> None:
    hottest = ["  75 %  read (a.py:7)", "  25 %  decode (a.py:9)"]
    assert process_tools._hottest(RAW).splitlines() == hottest
