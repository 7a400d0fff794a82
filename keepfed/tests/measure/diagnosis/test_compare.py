"""Changes are tried alternately with the unchanged loop, within a limited time."""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

from keepfed.measure.advice import Change, candidates, with_arguments, with_persistent_workers
from keepfed.measure.diagnosis import compare as compare_module
from keepfed.measure.diagnosis.compare import LoopComparison, compare
from keepfed.measure.diagnosis.loop import DiagnosedLoop
from tests.measure import datasets as data
from tests.measure.handmade import hungry

ROWS = TensorDataset(torch.arange(4000.0))
WORKERS, WHOLE = with_arguments(num_workers=2), Change("", "whole batches")
AHEAD = Change("", "thread ahead")


def test_cause_selects_the_changes_to_try() -> None:
    for cause, changes, expected in (
        ("CPU", {"workers": 0, "step_s": 0.05}, ["num_workers=2", "num_workers=4"]),
        ("CPU", {"workers": 4}, []),  # all cores are busy
        ("CPU", {"kind": "batches of samples", "workers": 4}, ["read each batch"]),
        ("CPU", {"one_thread_gain": 3.0}, ["limit thread pools to one thread: worker_init_fn"]),
        ("CPU", {"one_thread_gain": 3.0, "workers": 0}, ["limit thread pools to one thread: OPEN"]),
        ("CPU", {"worker_cores": 1}, ["let the workers use all 4 cores"]),
        ("CPU", {"kind": "no DataLoader"}, ["prefetch in a thread"]),
        ("storage", {"computing_s": 0.01}, ["num_workers=4", "num_workers=8"]),
        ("storage", {"computing_s": 0.01, "workers": 16}, []),
        ("collate or IPC", {"sending_s": 0.2}, ["num_workers=0"]),
        ("collate or IPC", {"workers": 0, "collate_s": 0.09}, ["num_workers=2", "num_workers=4"]),
        ("uneven", {"computing_s": 0.01}, ["in_order=False", "num_workers=4"]),
        ("transfer", {}, []),
    ):
        found = [change.words for _, change in candidates(hungry(**changes), cause)]
        assert len(found) == len(expected), cause
        for words, start in zip(found, expected, strict=True):
            assert words.startswith(start), cause


class Noisy(data.Numbers):
    """A dataset that returns whole batches, but with different noise each time."""

    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(index).double() + torch.rand(())


class OnlyHere(data.Numbers):
    def __getitem__(self, index: int) -> float:
        assert get_worker_info() is None
        return float(index)


class Repeated(data.Stream):
    """A stream that every worker yields completely."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


def compared(
    loader: Any, *changes: Change, step: Any = lambda batch: None, seconds: float = 2.0, **more: Any
) -> list[LoopComparison | None]:
    m = hungry(**{"workers": 0, "epoch": None, "start_method": "fork", **more})
    until = time.perf_counter() + seconds
    return compare(DiagnosedLoop(loader, step), changes, m, rounds=2, until=until)


def test_changes_run_alternately_with_the_real_step() -> None:
    steps = list[int]()
    loader = DataLoader(ROWS, batch_size=8)
    (whole,) = compared(loader, WHOLE, step=lambda batch: steps.append(len(batch)))
    assert 1 <= len(whole.changed_s) <= len(whole.now_s) <= 2
    assert whole.gain == pytest.approx(median(whole.now_s) / median(whole.changed_s))
    assert steps
    assert compared([torch.zeros(1)] * 30, AHEAD, kind="no DataLoader") != [None]


def test_change_that_the_loader_does_not_support_has_no_comparison() -> None:
    whole, workers = compared(DataLoader(Noisy(400), batch_size=8), WHOLE, WORKERS)
    assert (whole, workers is None) == (None, False)
    assert compared(DataLoader(OnlyHere(400), batch_size=8), WORKERS) == [None]
    few = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=8)
    assert compared(few, WHOLE) == [None]


def test_stream_that_each_worker_repeats_is_noticed() -> None:
    for dataset, repeats in ((data.Stream(800), False), (Repeated(800), True)):
        (workers,) = compared(DataLoader(dataset, batch_size=8), WORKERS, kind="stream", epoch=100)
        assert workers.repeats is repeats


def test_workers_become_persistent_if_an_epoch_is_short() -> None:
    loader = DataLoader(ROWS, batch_size=8)
    for epoch, persistent in ((2, True), (10**6, False)):
        (workers,) = compared(loader, WORKERS, epoch=epoch)
        assert workers.change.arguments.get("persistent_workers", False) is persistent
    lasting = DataLoader(ROWS, batch_size=8, num_workers=1, persistent_workers=True)
    for ours, change in ((lasting, WORKERS), (loader, with_persistent_workers(WORKERS))):
        (workers,) = compared(ours, change, epoch=2)
        assert workers.change == change


@pytest.mark.parametrize(("seconds", "count"), [(0.3, 0), (9.0, 1), (15.0, 2)])
def test_no_run_begins_late(monkeypatch: pytest.MonkeyPatch, seconds: float, count: int) -> None:
    monkeypatch.setattr(compare_module._Variant, "run", lambda variant, seconds: None)
    changes = with_arguments(num_workers=4), with_arguments(num_workers=5)
    options = {"workers": 2, "start_method": "spawn"}
    assert len(compared([], *changes, seconds=seconds, **options)) == count
