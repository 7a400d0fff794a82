"""Observe a loader from the main process: time its sampler, detect workers that wait for a lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
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


def is_lock_contended(processes: Sequence[int]) -> bool:
    """Return whether at least half of the processes, but not all, wait for a lock now.

    Then one of the other processes probably holds it. If all of them wait, they wait for their own
    threads. On systems other than Linux, the result is False.
    """
    waiting = sum(_waits_for_a_lock(pid) for pid in processes)
    return len(processes) / 2 <= waiting < len(processes)


def _waits_for_a_lock(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/wchan").read_text().startswith(("futex", "locks_lock", "flock"))
    except OSError:
        return False
