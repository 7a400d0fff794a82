"""Sampling a worker from outside: live output, or a recording with a reason."""

import os
import subprocess
from unittest.mock import Mock

import pytest

from course_utils.stories import hot_lines as module
from course_utils.stories.hot_lines import hot_lines, hottest

RAW = """thread (0x7F): "MainThread";<module> (a.py:1);read (a.py:7) 30
thread (0x7F): "MainThread";<module> (a.py:1);decode (a.py:9) 10
thread (0x80): "QueueFeederThread";wait (threading.py:1) 40
"""


DENIED = subprocess.CalledProcessError(1, "py-spy", stderr="Error: Permission Denied\nmore")


def test_lines_are_live_or_recorded_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert " %  " in hot_lines(os.getpid())
    missing = FileNotFoundError()
    for error, reason in (DENIED, "Error: Permission Denied"), (missing, "FileNotFoundError"):
        monkeypatch.setattr(module.subprocess, "run", Mock(side_effect=error))
        assert f"({reason}). This is a recording." in hot_lines(1)
        assert "Recorded" in hot_lines(1)


def test_only_main_thread_counts_and_hottest_line_is_first() -> None:
    assert hottest(RAW).splitlines() == ["  75 %  read (a.py:7)", "  25 %  decode (a.py:9)"]
