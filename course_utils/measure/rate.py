"""Measure how fast a loader is on its own, without the two errors that everybody makes.

The first batch pays for starting the workers, and the next ones were prefetched while it was: both
are left out, so that what remains is the rate that a long epoch has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from course_utils.measure.one_epoch import Cut, prefetched
from course_utils.measure.traced_loader import batch_size


@dataclass(frozen=True)
class Rate:
    """How fast a loader is once it runs."""

    start_up_s: float  # until the first batch: starting the workers and loading it
    batches_per_s: float
    samples_per_s: float
    batches: int  # that were counted
    dropped: int  # first ones that were not: num_workers * prefetch_factor + 1

    def __repr__(self) -> str:
        """Say it in words."""
        return (
            f"{self.batches_per_s:.3g} batches/s ({self.samples_per_s:,.0f} samples/s) over "
            f"{self.batches} batches, after {self.start_up_s:.2f} s of start-up and "
            f"{self.dropped} batches that came out of the first prefetching"
        )


def steady_rate(
    loader: Iterable[Any],
    *,
    seconds: float = 3.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Rate:
    """Return the rate of `loader` alone; nothing is done with its batches.

    An epoch that lasts longer is cut short, after `seconds` of steady running. Of an epoch with
    fewer than twice as many batches as would be dropped, the first half is dropped.

    Raises:
        ValueError: the loader gave fewer than two batches.
    """
    raise NotImplementedError
