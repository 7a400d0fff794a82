"""Add up the CPU time of a sampler, which the main process spends in next()."""

from __future__ import annotations

from collections.abc import Iterator
from time import thread_time_ns
from typing import Any


class TimedSampler:
    """An iterator over the indices of a sampler that adds up the sampler's CPU time."""

    def __init__(self, indices: Iterator[Any]):
        self.indices = indices
        self.spent_ns = self.count = 0

    def __iter__(self) -> TimedSampler:
        return self

    def __next__(self) -> Any:
        begun_ns = thread_time_ns()
        try:
            return next(self.indices)
        finally:
            self.spent_ns += thread_time_ns() - begun_ns
            self.count += 1

    def take(self) -> tuple[int, int]:
        """Return the CPU time and the number of calls since the last time that it was called."""
        taken, self.spent_ns, self.count = (self.spent_ns, self.count), 0, 0
        return taken


def time_sampler(batches: Any) -> TimedSampler | None:
    """Start to time the sampler of a `DataLoader`'s iterator.

    Returns:
        The timed sampler. None if there is no sampler, if it is already timed, or if it saves its
        state, because a `StatefulDataLoader` calls methods of such a sampler.
    """
    indices = getattr(batches, "_sampler_iter", None)
    is_timed = isinstance(indices, TimedSampler)
    if indices is None or is_timed or hasattr(indices, "state_dict"):
        return None
    batches._sampler_iter = sampler = TimedSampler(indices)
    return sampler
