import os
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from course_utils.errors import CourseError
from course_utils.teaching.notebook import cpu_use, disk_use, hot_lines, onlookers
from course_utils.teaching.notebook import worker_pids as pids
from course_utils.teaching.notebook.onlookers import during, stacks

RAW = """thread (0x7F): "MainThread";<module> (a.py:1);read (a.py:7) 30
thread (0x7F): "MainThread";<module> (a.py:1);decode (a.py:9) 10
thread (0x80): "QueueFeederThread";wait (threading.py:1) 40
"""


@pytest.fixture
def workers() -> Iterator[list[int]]:
    """Keep two workers alive, waiting for their next task."""
    numbers = TensorDataset(torch.arange(64))
    loader = DataLoader(numbers, batch_size=4, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    yield pids()
    for _ in batches:
        pass


def failing(error: str) -> Any:
    return lambda command, **_: subprocess.CompletedProcess(command, 1, "", error)


@pytest.mark.slow
def test_workers_are_listed_and_their_processor_and_disk_shown(workers: list[int]) -> None:
    assert len(workers) == 2
    assert all(psutil.pid_exists(pid) for pid in workers)
    for look in (cpu_use(seconds=0.1), disk_use(seconds=0.1)):
        assert "It sees" in repr(look)
        assert "It misses" in repr(look)
        if not look.note:
            assert all(str(pid) in look.shows for pid in (os.getpid(), *workers))


@pytest.mark.slow
def test_py_spy_shows_where_a_worker_is_or_a_recording_with_the_reason(
    workers: list[int],
) -> None:
    look = stacks(workers[0])
    assert "_worker_loop" in look.shows
    assert look.note == "" or "was recorded elsewhere" in look.note


@pytest.mark.slow
def test_samples_of_a_worker_are_counted_by_line(workers: list[int]) -> None:
    assert " %  " in hot_lines(workers[1], seconds=1).shows


@pytest.mark.parametrize(("pid", "name"), [(None, "Queue.get"), (1, "Slow.__getitem__")])
def test_a_forbidden_look_shows_the_recording_and_says_why(
    pid: int | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onlookers.subprocess, "run", failing("Error: Permission Denied\nmore"))
    look = stacks(pid)
    assert name in look.shows
    assert "(Error: Permission Denied)" in look.note
    assert "sudo py-spy dump --pid" in look.note
    assert look.note in repr(look)
    assert "Permission Denied" in look._repr_html_()


def test_a_missing_py_spy_shows_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(onlookers.subprocess, "run", missing)
    assert "FileNotFoundError" in hot_lines(1).note
    assert "Recorded" in hot_lines(1).shows


def test_a_system_without_counters_shows_the_recorded_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onlookers, "sys", SimpleNamespace(platform="darwin"))
    look = disk_use()
    assert "Only Linux" in look.note
    assert "worker 1" in look.shows


def test_only_the_main_thread_counts_and_the_hottest_line_is_first() -> None:
    assert onlookers._hottest(RAW).splitlines() == [
        "  75 %  read (a.py:7)",
        "  25 %  decode (a.py:9)",
    ]
    assert "look for longer" in onlookers._hottest("")


def test_a_look_is_taken_while_the_work_runs() -> None:
    looked: list[float] = []
    shown = onlookers.Look("tool", "shows", "It sees.", "It misses.")

    def look() -> onlookers.Look:
        looked.append(time.monotonic())
        return shown

    def work() -> None:
        while not looked:
            pass

    assert during(work, look, after=0.01) is shown


def test_work_that_is_done_too_early_says_what_to_do() -> None:
    with pytest.raises(CourseError, match="give it more, or look earlier"):
        during(lambda: None, cpu_use, after=60)
