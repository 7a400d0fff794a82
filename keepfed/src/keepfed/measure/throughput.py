"""Measure the throughput of a loader alone, without two common errors.

The first batch includes the start of the workers, and the workers prefetch the next batches during
that time. The measurement leaves out both, so it returns the throughput of a long epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.formatting import plural
from keepfed.measure.hook import batch_size, data_loader_in, end
from keepfed.measure.records import warm_up_batches


@dataclass(frozen=True)
class Rate:
    """Steady throughput of a loader."""

    start_up_s: float  # time until the first batch, including the start of the workers
    batches_per_s: float
    samples_per_s: float
    batches: int  # number of measured batches
    dropped: int  # number of first batches left out: num_workers * prefetch_factor + 1


def steady_rate(
    loader: Iterable[Any], *, seconds: float = 3.0, clock: Callable[[], float] = time.perf_counter
) -> Rate:
    """Measure the throughput of one epoch of `loader` without a training step.

    The measurement stops after `seconds` of steady running, even if the epoch continues. In a short
    epoch, at most half of the batches are dropped.

    Raises:
        KeepfedError: If the epoch has fewer than two batches, or ends before it is steady.
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
            f"The epoch ended after {plural(len(times), 'batch')}, but the first {dropped} are "
            "dropped because they were prefetched during start-up. Use a loader with more batches."
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
    """Return how many batches `loader` may have ready when you take the first one."""
    inner = data_loader_in(loader)
    if inner is None or not inner.num_workers:
        return 0
    return int(inner.num_workers) * int(inner.prefetch_factor or 2)


def length(sized: Any) -> int | None:
    """Return the length of a loader, a sampler or a dataset, or None if it is unknown."""
    try:
        return len(sized)
    except Exception:  # a length of the program's own may raise anything
        return None
