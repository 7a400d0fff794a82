"""Look at a loader from the main process: its sampler, and what its workers wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import thread_time_ns
from typing import Any


class TimedSampler:
    """Gives the indices of a sampler, and counts the processor time that it takes."""

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
    """Time the sampler of a `DataLoader`'s iterator from now on.

    None if it has none, and for one that saves its state, which a `StatefulDataLoader` asks it for.
    """
    indices = getattr(batches, "_sampler_iter", None)
    is_timed = isinstance(indices, TimedSampler)
    if indices is None or is_timed or hasattr(indices, "state_dict"):
        return None
    batches._sampler_iter = sampler = TimedSampler(indices)
    return sampler


def is_lock_contended(processes: Sequence[int]) -> bool:
    """Tell whether most of some processes wait for a lock now, but not all of them.

    Then one of them probably has it. If all wait, they wait for threads of their own. False where
    the system does not tell.
    """
    waiting = sum(_waits_for_a_lock(pid) for pid in processes)
    return len(processes) / 2 <= waiting < len(processes)


def _waits_for_a_lock(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/wchan").read_text().startswith(("futex", "locks_lock", "flock"))
    except OSError:
        return False
