import os
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch.utils.data import DataLoader, TensorDataset

from keepfed.limits import affinity
from keepfed.measure.advice import Change, with_arguments, with_persistent_workers
from keepfed.measure.diagnosis.changes import applied, same
from tests.measure.datasets import Numbers

ONE, WHOLE = {"num_workers": 1}, Change("", "whole batches")


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(4000.0)), batch_size=8, **options)


def test_applied_yields_equal_batches_and_restores_the_loader() -> None:
    for options, change, expected in (
        ({}, with_arguments(num_workers=1), {"num_workers": 1, "prefetch_factor": 2}),
        (ONE, with_arguments(num_workers=0), {"prefetch_factor": None, "timeout": 0}),
        ({}, WHOLE, {"batch_size": None, "batch_sampler": None}),
        (ONE, with_persistent_workers(WHOLE), {"batch_size": None, "persistent_workers": True}),
    ):
        ours = loader(**options)
        before = dict(vars(ours))
        with applied(ours, change) as changed:
            assert {name: getattr(ours, name) for name in expected} == expected, options
            assert same(list(changed), list(loader())), options
        assert vars(ours) == before, options


class Computing(Numbers):
    """A dataset that computes and returns the size of the thread pools."""

    def __getitem__(self, index: int) -> float:
        np.ones((400, 400)) @ np.ones((400, 400))
        return float(max(pool["num_threads"] for pool in threadpool_info()))


def begin(worker_id: int) -> None:
    torch.manual_seed(worker_id)


def test_thread_pools_are_limited_temporarily() -> None:
    for workers in (0, 2):
        threads, pools = torch.get_num_threads(), [p["num_threads"] for p in threadpool_info()]
        init = begin if workers else None
        ours = DataLoader(Computing(12), 3, num_workers=workers, worker_init_fn=init)
        with applied(ours, Change("", "one thread")) as changed:
            assert {int(most) for batch in changed for most in batch} == {1}, workers
        assert ours.worker_init_fn is init, workers
        assert torch.get_num_threads() == threads, workers
        assert [pool["num_threads"] for pool in threadpool_info()] == pools, workers


class Cores(Numbers):
    def __getitem__(self, index: int) -> float:
        return float(len(affinity()))


def on_one_core(worker_id: int) -> None:
    os.sched_setaffinity(0, {min(affinity())})


@pytest.mark.skipif(len(affinity()) < 2, reason="only one core")
def test_pinned_workers_use_all_cores_temporarily() -> None:
    how: Any = {"multiprocessing_context": "forkserver"}  # the change must be picklable
    ours = DataLoader(Cores(12), 3, num_workers=2, worker_init_fn=on_one_core, **how)
    with applied(ours, Change("", "all cores")) as changed:
        assert {int(cores) for batch in changed for cores in batch} == {len(affinity())}
    assert {int(cores) for batch in ours for cores in batch} == {1}


def test_batches_are_equal_if_their_contents_are() -> None:
    for one, other, equal in (
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.ones(2).double(), False),
        ({"x": [torch.ones(1), 2]}, {"x": [torch.ones(1), 2]}, True),
        ({"x": 1}, {"x": 1, "y": 1}, False),
        ([1], (1,), False),
        (np.ones(2), np.ones(2), False),  # arrays are not compared,
    ):
        assert same(one, other) is equal, one
