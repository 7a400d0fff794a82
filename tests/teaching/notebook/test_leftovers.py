"""What is cleared away after an interrupt, without a kernel; with one in test_kernel.py."""

import multiprocessing
import os
import signal
import sys
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, _utils
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from course_utils.teaching.notebook import cleanup_workers


@pytest.mark.slow
@pytest.mark.parametrize(
    "state", [{}, {"_shutdown": False}, {"_shutdown": False, "_workers": []}], ids=str
)
def test_a_loop_that_was_interrupted_while_it_began_is_no_obstacle(
    state: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cleanup_workers()  # of what other tests left
    capsys.readouterr()
    half_made: Any = _MultiProcessingDataLoaderIter.__new__(_MultiProcessingDataLoaderIter)
    vars(half_made).update(state)
    cleanup_workers()
    assert capsys.readouterr().out.endswith("0 worker processes.\n" if state else "over.\n")
    half_made._shutdown = True  # for torch, which shuts it down again as it goes


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_worker_that_nobody_knows_any_more_is_ended(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
    # It counts as shut down: torch would keep its address, and refuse a later loop that gets it.
    _utils.signal_handling._remove_worker_pids(id(batches))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there")
def test_a_server_of_workers_that_an_interrupt_ended_is_started_again() -> None:
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    forkserver.ensure_running()
    ended = server._forkserver_pid
    os.kill(ended, signal.SIGKILL)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)  # all its threads, and it stays a zombie
    cleanup_workers()
    forkserver.ensure_running()
    assert server._forkserver_pid != ended
