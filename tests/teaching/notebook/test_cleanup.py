"""Cleanup after an interrupt without a kernel; test_kernel.py tests it with a kernel."""

import multiprocessing
import os
import signal
import sys
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, _utils

from course_utils.teaching.notebook import cleanup_workers


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_orphaned_worker_is_killed(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot start processes by {method}")
    numbers = TensorDataset(torch.arange(4))
    batches: Any = iter(DataLoader(numbers, num_workers=1, multiprocessing_context=method))
    (worker,) = batches._workers
    multiprocessing.process._children.discard(worker)  # as if the start had been interrupted
    batches._shutdown = True
    cleanup_workers()
    said = "Cleaned up 0 unfinished loops over a loader and 1 worker process.\n"
    assert capsys.readouterr().out == said
    assert not psutil.pid_exists(worker.pid)
    # Mark it as shut down; otherwise torch keeps its address and rejects a later loop that gets it.
    _utils.signal_handling._remove_worker_pids(id(batches))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there")
def test_forkserver_killed_by_an_interrupt_is_restarted() -> None:
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    forkserver.ensure_running()
    ended = server._forkserver_pid
    os.kill(ended, signal.SIGKILL)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)  # leaves a zombie
    cleanup_workers()
    forkserver.ensure_running()
    assert server._forkserver_pid != ended
