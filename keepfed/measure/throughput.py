"""Measure how fast a loader is on its own, without the two errors that everybody makes.

The first batch pays for starting the workers, and the next ones were prefetched while it was: both
are left out, so that what remains is the rate that a long epoch has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.measure.hook import batch_size, data_loader_in, end


@dataclass(frozen=True)
class Rate:
    """How fast a loader is once it runs."""

    start_up_s: float  # until the first batch: starting the workers and loading it
    batches_per_s: float
    samples_per_s: float
    batches: int  # that were counted
    dropped: int  # first ones that were not: num_workers * prefetch_factor + 1


def steady_rate(
    loader: Iterable[Any], *, seconds: float = 3.0, clock: Callable[[], float] = time.perf_counter
) -> Rate:
    """Return the rate of one epoch of `loader` alone; nothing is done with its batches.

    An epoch that lasts longer is cut short, after `seconds` of steady running. Of an epoch with
    less than twice the batches that would be dropped, only half are dropped.

    Raises:
        KeepfedError: the epoch has fewer than two batches, or ended before it was steady.
    """
    dropped = warm_up_batches(prefetched(loader), length(loader))
    times: list[float] = []
    samples: list[int] = []
    started = clock()
    batches: Iterator[Any] | None = None
    try:
        batches = iter(loader)
        for batch in batches:
            times.append(clock())
            samples.append(batch_size(batch))
            if len(times) > dropped and times[-1] - times[dropped - 1] >= seconds:
                break
    except BaseException:
        end(batches, orderly=False)
        raise
    end(batches)
    if len(times) <= dropped:
        raise KeepfedError(
            f"The epoch ended after {len(times)} batches, {dropped} of which are the prefetched "
            "ones that have to be dropped; give a loader with more batches."
        )
    lasted = max(times[-1] - times[dropped - 1], 1e-9)
    return Rate(
        start_up_s=times[0] - started,
        batches_per_s=(len(times) - dropped) / lasted,
        samples_per_s=sum(samples[dropped:]) / lasted,
        batches=len(times) - dropped,
        dropped=dropped,
    )


def prefetched(loader: Iterable[Any]) -> int:
    """Return how many batches `loader` may have ready when the first one is taken."""
    inner = data_loader_in(loader)
    if inner is None or not inner.num_workers:
        return 0
    return int(inner.num_workers) * int(inner.prefetch_factor or 2)


def length(loader: Iterable[Any]) -> int | None:
    """Return the number of batches of an epoch, None if the loader does not know."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def warm_up_batches(prefetched: int, length: int | None) -> int:
    """Return how many first batches of an epoch say nothing about its steady rate."""
    return min(prefetched + 1, max(1, (length if length is not None else 2**62) // 2))
