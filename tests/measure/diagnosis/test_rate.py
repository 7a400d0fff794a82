from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.errors import CourseError
from course_utils.measure.diagnosis import steady_rate
from course_utils.measure.diagnosis.rate import first_dropped
from tests.measure.datasets import Numbers


class Timed:
    """Batches that come at given times of a clock of their own."""

    def __init__(self, times: list[float]):
        self.times, self.now = times, 0.0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for time in self.times:
            self.now = time
            yield torch.zeros(4)

    def __len__(self) -> int:
        return len(self.times)

    def clock(self) -> float:
        return self.now


def test_start_up_is_no_part_of_the_rate() -> None:
    loader = Timed([5.0, 5.5, 6.0, 6.5])
    rate = steady_rate(loader, clock=loader.clock)
    assert (rate.start_up_s, rate.dropped, rate.batches) == (5.0, 1, 3)
    assert rate.batches_per_s == pytest.approx(2)
    assert rate.samples_per_s == pytest.approx(8)


def test_an_epoch_is_cut_short_when_its_time_is_up() -> None:
    loader = Timed([float(second) for second in range(100)])
    rate = steady_rate(loader, seconds=10, clock=loader.clock)
    assert rate.batches == 10
    assert rate.batches_per_s == pytest.approx(1)


@pytest.mark.parametrize(
    ("ahead", "length", "dropped"), [(4, 100, 5), (4, None, 5), (16, 10, 5), (0, 1, 1)]
)
def test_prefetched_batches_are_dropped_but_of_a_short_epoch_only_half(
    ahead: int, length: int | None, dropped: int
) -> None:
    assert first_dropped(ahead, length) == dropped


def test_an_epoch_of_one_batch_has_no_rate() -> None:
    loader = Timed([1.0])
    with pytest.raises(CourseError, match="more batches"):
        steady_rate(loader, clock=loader.clock)


def test_workers_are_gone_when_the_rate_is_known() -> None:
    loader = DataLoader(Numbers(4000), batch_size=4, num_workers=2)
    rate = steady_rate(loader, seconds=0.05)
    assert rate.dropped == 5
    assert rate.samples_per_s == pytest.approx(4 * rate.batches_per_s, rel=0.5)
    assert not multiprocessing.active_children()
