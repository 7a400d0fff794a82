import multiprocessing
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from keepfed.measure.hook import contents_of, is_lock_contended, time_sampler
from keepfed.measure.records import Contents
from tests.measure.datasets import Numbers


def test_timed_sampler_returns_the_same_indices() -> None:
    for workers in (0, 1):
        loader = DataLoader(Numbers(), 4, num_workers=workers)
        batches = iter(loader)
        timed = time_sampler(batches)
        assert timed is not None, workers
        assert time_sampler(batches) is None, workers  # already timed
        assert torch.equal(torch.cat([*batches]), torch.cat([*loader])), workers
        assert min(timed.count, timed.spent_ns) > 0, workers
        assert time_sampler(iter([])) is None, workers


class Saved:
    """A sampler like torchdata's, from which a `StatefulDataLoader` requests the state."""

    def __next__(self) -> int:
        return 1

    def state_dict(self) -> dict[str, int]:
        return {}


def test_sampler_that_saves_its_state_is_not_timed() -> None:
    batches = SimpleNamespace(_sampler_iter=(saved := Saved()))
    assert time_sampler(batches) is None
    assert batches._sampler_iter is saved


def _wait(lock: Any, ready: Any) -> None:
    ready.release()
    with lock:
        time.sleep(30)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no /proc")
def test_lock_held_by_one_process_is_detected() -> None:
    context = multiprocessing.get_context("fork")
    lock, ready = context.Lock(), context.Semaphore(0)
    processes = [context.Process(target=_wait, args=(lock, ready)) for _ in range(3)]
    for process in processes:
        process.start()
        ready.acquire()
    pids = [process.pid for process in processes]
    until = time.monotonic() + 20
    while not (seen := is_lock_contended(pids)) and time.monotonic() < until:
        time.sleep(0.01)
    for process in processes:
        process.kill()
        process.join()
    assert seen
    assert not is_lock_contended(pids)  # the processes have ended


def test_contents_of_a_batch() -> None:
    for batch, expected in (
        (torch.rand(4, 8), Contents(0, "", 1.0)),
        (torch.rand(4, 8, dtype=torch.float64), Contents(0, "float32", 0.5)),
        (torch.randint(0, 255, (4, 3, 8, 8)).float(), Contents(0, "uint8", 0.25)),
        (torch.randint(2, 255, (4, 64)) / 255.0, Contents(0, "uint8 (times 255)", 0.25)),
        (torch.arange(5000), Contents(0, "int16", 0.25)),
        (torch.arange(5000, dtype=torch.uint8), Contents(0, "", 1.0)),
        (torch.zeros(4, 8), Contents(0, "", 1.0)),  # zeros do not show the range of values
        (torch.tensor([float("nan"), 1.0]), Contents(0, "", 1.0)),
        ([{"name": "a", "x": 1.0}, {"name": "b", "x": 2.0}], Contents(4, "", 1.0)),
        ((torch.rand(4, 8), ["a", "b"]), Contents(2, "", 1.0)),
        (torch.rand(4, 8).bfloat16(), Contents(0, "", 1.0)),
    ):
        assert contents_of(batch) == expected, batch
