from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from course_utils.measure.diagnosis import runs
from course_utils.measure.diagnosis.runs import copy_s, run_loop, run_step, weigh


@dataclass
class Batch:
    pulses: torch.Tensor
    name: str = "run 1"


@pytest.mark.parametrize(
    ("batch", "least"),
    [
        ({"x": torch.zeros(1000), "y": [torch.zeros(10)]}, 4040),
        (Batch(torch.zeros(1000)), 4000),
        (np.zeros(1000), 8000),
        ((torch.zeros(1000), lambda: None), 4000),  # cannot be pickled
    ],
)
def test_a_batch_weighs_what_its_tensors_and_the_rest_do(batch: Any, least: int) -> None:
    tensors, nbytes, _ = weigh(batch)
    assert least <= nbytes < least + 2000
    assert not any(tensor.is_shared() for tensor in tensors)  # the batch stays as it was


def test_a_tree_of_dicts_costs_more_to_pickle_and_more_bytes_more_to_copy() -> None:
    tree = [{"x": i, "y": 0.5 * i} for i in range(20_000)]
    assert weigh(tree)[2] > 5 * min(weigh(torch.zeros(40_000))[2] for _ in range(3))
    large, small = ([torch.zeros(count)] for count in (10_000_000, 10))
    assert copy_s(large, torch.device("cpu")) > 3 * copy_s(small, torch.device("cpu")) > 0


class Accelerator:
    """Stands for torch.accelerator of a device on which a step allocates, or does not."""

    def __init__(self) -> None:
        self.allocations = self.waits = 0

    def is_available(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.waits += 1

    def memory_stats(self) -> dict[str, int]:
        return {"allocation.all.allocated": self.allocations}

    def current_accelerator(self) -> torch.device:
        return torch.device("meta")

    def step(self, batch: Any) -> None:
        self.allocations += 1


def test_a_copy_is_weighed_only_where_the_step_used_the_device_and_the_device_takes_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Accelerator()
    monkeypatch.setattr(torch, "accelerator", device)

    def weighed(step: Any) -> bool:
        run = run_step(step, [torch.zeros(1000)], seconds=0.01, synchronize=None)
        return run.copy_s > 0

    assert weighed(device.step)
    assert not weighed(torch.numel)

    def refuse(tensors: Any, device: Any) -> float:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    monkeypatch.setattr(runs, "copy_s", refuse)
    assert not weighed(device.step)


def test_a_step_that_does_not_use_cuda_starts_it_not(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Accelerator()
    monkeypatch.setattr(torch, "accelerator", device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for started in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda started=started: started)
        run_step(torch.numel, [torch.zeros(1000)], seconds=0.01, synchronize=None)
        assert bool(device.waits) is started


def test_steps_that_were_only_launched_are_waited_for_before_the_loop_is_judged() -> None:
    waited: list[float] = []
    run = run_loop(
        [torch.zeros(1)] * 40,
        len,
        seconds=0.01,
        synchronize=lambda: waited.append(time.perf_counter()),
    )
    assert run.turns[-2].done < waited[0] < run.turns[-1].done
