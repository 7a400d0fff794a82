import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from keepfed.measure import accelerator
from keepfed.measure.diagnosis import runs
from keepfed.measure.diagnosis.loop import DiagnosedLoop
from keepfed.measure.diagnosis.replay import nbytes
from keepfed.measure.diagnosis.runs import run_loop
from keepfed.measure.diagnosis.three_runs import Headroom, headroom, three_runs


@dataclass
class Batch:
    pulses: torch.Tensor
    name: str = "run 1"


def test_batch_bytes_are_those_of_tensors_and_pickled_rest() -> None:
    for batch, least in (
        ({"x": torch.zeros(1000), "y": [torch.zeros(10)]}, 4040),
        (Batch(torch.zeros(1000)), 4000),
        (np.zeros(1000), 8000),
        ((torch.zeros(1000), lambda: None), 4000),  # cannot be pickled,
    ):
        assert least <= nbytes(batch) < least + 2000, batch


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Return a fake torch.accelerator that counts waits, and steps, which allocate memory."""
    device = Mock(**{"is_available.return_value": True, "step.return_value": None})
    device.current_accelerator.return_value = torch.device("meta")
    device.memory_stats = lambda: {"allocation.all.allocated": device.step.call_count}
    monkeypatch.setattr(accelerator, "ACCELERATOR", device)
    return device


def test_copy_is_timed_only_if_the_step_used_the_device(device: Mock, monkeypatch: Any) -> None:
    def used_and_weighed(step: Any) -> tuple[bool, bool]:
        found = three_runs(DiagnosedLoop([torch.zeros(1000)] * 9, step), seconds=0.05)
        return found.step.used_device, found.replay.copy_s is not None

    assert used_and_weighed(device.step) == (True, True)
    assert used_and_weighed(torch.numel) == (False, False)
    for error in TypeError("no float64 on MPS"), torch.OutOfMemoryError("CUDA out of memory"):
        monkeypatch.setattr(accelerator, "tensors", Mock(side_effect=error))
        assert used_and_weighed(device.step) == (True, False)


def test_diagnosis_does_not_initialize_cuda(device: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for started in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda started=started: started)
        run_loop([torch.zeros(1000)] * 9, torch.numel, seconds=0.01)
        assert device.synchronize.called is started


class Timed:
    """A loader, a step and a device with a fake clock."""

    def __init__(self, batches: int):
        self.batches, self.now, self.seen = batches, 0.0, list[str]()
        self.perf_counter, self.process_time = lambda: self.now, lambda: 0.0
        self.perf_counter_ns, self.process_time_ns = lambda: int(self.now * 1e9), lambda: 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __iter__(self) -> Iterator[torch.Tensor]:
        try:
            for _ in range(self.batches):
                self.now += 0.01
                yield torch.zeros(1)
        finally:
            self.now += 5.0
            self.seen.append("the loader has ended")

    def step(self, batch: Any) -> None:
        self.now += 0.02

    def synchronize(self) -> None:
        if self.now < 100:  # the device lags once
            self.now += 100
            self.seen.append("the device has finished")


@pytest.mark.parametrize("batches", [10, 1000])
def test_last_iteration_ends_with_the_device(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    loop = Timed(batches)
    monkeypatch.setattr(runs, "time", loop)
    run = run_loop(loop, loop.step, loop.synchronize, seconds=0.5)
    steps_s = [(one.left_ns - one.got_ns) / 1e9 for one in run.iterations[-2:]]
    assert steps_s == pytest.approx([0.02, 100.02])
    if batches == 10:
        assert (run.lengths, run.endings_ns) == ([10], [pytest.approx(5e9)])
    else:  # the epoch is incomplete, so the time of its end is unknown
        assert (run.lengths, run.endings_ns) == ([], [])
        assert loop.seen == ["the device has finished", "the loader has ended"]


def test_headroom_is_the_gain_of_an_ideal_loader_or_step() -> None:
    ideal = Headroom(loader_s=0.03, step_s=0.01, together_s=0.04)
    assert (ideal.of_loader, ideal.of_step) == pytest.approx((4, 4 / 3))
    assert "At most 4.0 times as fast with a faster loader, and 1.3 times" in str(ideal)
    found = headroom([torch.zeros(1)] * 200, lambda batch: time.sleep(0.004), seconds=1)
    assert found.loader_s < 0.004 <= found.step_s
