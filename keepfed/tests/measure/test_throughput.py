import multiprocessing
from itertools import chain, count

import pytest
import torch
from torch.utils.data import DataLoader

from keepfed.errors import KeepfedError
from keepfed.measure.records import warm_up_batches
from keepfed.measure.throughput import steady_rate
from tests.measure.datasets import Numbers


def test_rate_excludes_start_up_and_stops_in_time() -> None:
    seconds = chain([0.0], count(5, 0.5))
    rate = steady_rate([torch.zeros(4)] * 100, seconds=10, clock=lambda: next(seconds))
    assert (rate.start_up_s, rate.dropped, rate.batches) == (5.0, 1, 20)
    assert (rate.batches_per_s, rate.samples_per_s) == pytest.approx((2, 8))


def test_prefetched_batches_are_dropped() -> None:
    for ahead, length, dropped in ((4, 100, 5), (4, None, 5), (16, 10, 5), (0, 1, 1)):
        assert warm_up_batches(ahead, length) == dropped, ahead


def test_rate_of_loader_leaves_no_workers_behind() -> None:
    rate = steady_rate(DataLoader(Numbers(4000), batch_size=4, num_workers=2), seconds=0.05)
    assert rate.dropped == 5
    assert rate.samples_per_s == pytest.approx(4 * rate.batches_per_s, rel=0.5)
    assert not multiprocessing.active_children()
    with pytest.raises(KeepfedError, match="more batches"):
        steady_rate([torch.zeros(4)])
