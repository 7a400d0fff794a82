"""The gain of a change is measured over complete epochs, as a user would do."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from keepfed.measure.advice import Change
from keepfed.measure.diagnosis.proof import first_share_s, measure_gain
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.diagnosis.runs import first_again_s
from keepfed.measure.records import Iteration
from keepfed.measure.trace import Trace
from tests.measure.handmade import hungry

ROWS = TensorDataset(torch.arange(4000.0))
PAUSE_S = 0.5


class Prepared(IterableDataset[int]):
    """A stream with a pause at the start of each epoch."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(PAUSE_S)
        return iter(range(8))


def slow_start(worker_id: int) -> None:
    time.sleep(PAUSE_S)


def test_second_epoch_shows_the_delay_of_persistent_workers() -> None:
    persistent = {"num_workers": 1, "persistent_workers": True}
    again = DataLoader(Prepared(), batch_size=2, **persistent)
    assert first_again_s(again) >= PAUSE_S
    once = DataLoader(ROWS, batch_size=2, worker_init_fn=slow_start, **persistent)
    assert first_again_s(once) < PAUSE_S
    assert again._iterator is once._iterator is None
    run = Run(Trace(clock=lambda: 0), workers=1, starts_ns=[0])
    run.iterations = [Iteration(0, 0, 0, 0, 10**9, 10**9)]
    m = hungry(epoch=4)
    assert first_share_s(again, run, m) >= PAUSE_S / 4
    assert first_share_s(once, run, m) < PAUSE_S / 4


def test_later_epochs_include_the_end_of_their_workers() -> None:
    run = Run(Trace(clock=lambda: 0), starts_ns=[0, 100, 160], lengths=[2, 2], endings_ns=[7, 8])
    run.iterations = [
        Iteration(n, n // 2, n % 2, 0, 0, left_ns) for n, left_ns in enumerate((60, 90, 120, 150))
    ]
    assert run.later_epochs_s == pytest.approx((150 + 8 - 100) / 2 / 1e9)
    run.lengths = [2]
    assert run.later_epochs_s is None


def test_gain_is_measured_by_alternate_runs() -> None:
    steps: list[int] = []
    ours = DataLoader(ROWS, batch_size=8)
    change = Change("", "whole batches")
    proof = measure_gain(ours, lambda batch: steps.append(1), hungry(), change, seconds=0.06)
    assert proof is not None
    assert len(proof.gains) == 3
    assert proof.gain == pytest.approx(proof.now_s / proof.changed_s)
    assert steps


def test_gain_of_a_loop_with_too_few_batches_is_unknown() -> None:
    few = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=8)
    change = Change("", "whole batches")
    assert measure_gain(few, lambda batch: None, hungry(), change, seconds=0.06) is None
