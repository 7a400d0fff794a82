from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

from keepfed.measure.advice import Cause, candidates
from keepfed.measure.diagnosis import runs, trials
from keepfed.measure.diagnosis.proof import Proof, measure_gain
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.diagnosis.trials import (
    OVERSLEPT_S,
    StandIn,
    predicted_s,
    run_trials,
)
from keepfed.measure.records import Fetch, Iteration
from keepfed.measure.trace import Trace
from tests.measure import datasets as data
from tests.measure.handmade import hungry

ROWS = TensorDataset(torch.arange(4000.0))


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


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(ROWS, batch_size=8, **options)


class Noisy(data.Numbers):
    """A dataset that returns whole batches, but with different noise each time."""

    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(index).double() + torch.rand(())


def trial_of(loader: Any, cause: Cause = "CPU", **figures: Any) -> list[Any]:
    alone = runs.run_loop(loader, None, seconds=0.02, keep=True)
    usual = {"workers": 0, "cores": 2, "step_s": 0.001, "fetch_s": 0.001, "computing_s": 0.001}
    m = hungry(**{**usual, "together_s": 1.0, **figures})
    return run_trials(loader, lambda batch: None, m, cause, alone=alone, seconds=0.02)


def test_stand_in_computes_and_takes_as_long_as_the_step() -> None:
    for computing_s, least_s in ((0.0, 0.0), (0.005, 0.005), (1.0, 0.01)):  # only one thread
        began_s, computed_s = time.perf_counter(), time.thread_time()
        StandIn(hungry(step_s=0.01, step_cpu_s=computing_s))(None)
        assert time.perf_counter() - began_s >= 0.01 - OVERSLEPT_S
        assert time.thread_time() - computed_s >= least_s


def test_prefetch_thread_is_tried_with_the_real_step() -> None:
    batches, done, waits = [torch.zeros(1)] * 30, list[Any](), list[int]()
    alone = runs.run_loop(batches, None, seconds=0.02, keep=True)
    m = hungry(kind="no DataLoader", workers=0)
    (trial,) = run_trials(
        batches,
        done.append,
        m,
        "CPU",
        alone=alone,
        seconds=0.02,
        synchronize=lambda: waits.append(1),
    )
    assert "ThreadPrefetcher" in trial.change.words
    assert len(done) > 1
    assert waits


def test_prediction_includes_the_other_threads_of_the_step() -> None:
    for step_s, step_cpu_s, iteration_s in (
        (0.012, 0.012, 0.01),  # the stand-in computes as much as the step
        (0.012, 0.024, 0.0155),  # the second thread of the step is added, 31 ms on two cores,
    ):
        run = Run(Trace(clock=lambda: 0), workers=2, dropped=0)
        ms = 10**6
        run.iterations = [
            Iteration(n, 0, n, 0, 0, 10 * ms * n, total_cpu_ns=ms * n, total_delay_ns=0)
            for n in range(4)
        ]
        run.fetches = [
            Fetch(n % 2, 0, 18 * ms, 18 * ms, 18 * ms, 18 * ms, 18 * ms * (n // 2))
            for n in range(8)
        ]
        m = hungry(step_s=step_s, step_cpu_s=step_cpu_s, cores=2)
        assert predicted_s(m, run) == pytest.approx(iteration_s), step_s


def test_whole_batches_are_advised_only_if_equal() -> None:
    whole, workers = trial_of(loader(), kind="batches of samples")
    assert (whole.change.kind, workers.change.arguments["num_workers"]) == ("whole batches", 2)
    noisy = DataLoader(Noisy(400), batch_size=8)
    assert [one.change.kind for one in trial_of(noisy, kind="batches of samples")] == ["arguments"]


@pytest.mark.parametrize(
    ("doubtful", "step_cpu_s", "proofs"),
    [
        ((0.0, float("inf")), 0.0, 1),
        ((0.0, 0.0), 0.0, 0),
        ((0.0, float("inf")), 0.002, 0),  # the stand-in has no second thread
    ],
)
def test_trial_with_a_doubtful_gain_is_repeated(
    monkeypatch: pytest.MonkeyPatch, doubtful: tuple[float, float], step_cpu_s: float, proofs: int
) -> None:
    proven = list[Proof]()

    def noting(*args: Any, **options: Any) -> Proof:
        proof = measure_gain(*args, **options)
        assert proof is not None
        proven.append(proof)
        return proof

    monkeypatch.setattr(trials, "DOUBTFUL", doubtful)
    monkeypatch.setattr(trials, "measure_gain", noting)
    (trial,) = trial_of(loader(), step_cpu_s=step_cpu_s)
    assert len(proven) == proofs
    for proof in proven:
        assert trial.iteration_s == pytest.approx(1.0 / proof.gain)


def test_more_workers_do_not_apply_to_a_stream_that_each_repeats() -> None:
    for shared, applicable in ((True, True), (False, False)):
        dataset = data.Stream(800) if shared else Repeated()
        (trial,) = trial_of(DataLoader(dataset, batch_size=8), kind="stream", epoch=100)
        assert trial.applicable is applicable, shared


class Repeated(data.Stream):
    """A stream that every worker yields completely."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(800))


def test_change_that_the_loader_does_not_support_is_not_advised() -> None:
    assert trial_of(DataLoader(OnlyHere(400), batch_size=8)) == []


class OnlyHere(data.Numbers):
    """A dataset that fails in a worker."""

    def __getitem__(self, index: int) -> float:
        assert get_worker_info() is None
        return float(index)
