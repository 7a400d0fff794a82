"""The record of one run of a loop, with the times that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from keepfed.measure.advice.thresholds import ENOUGH_ITERATIONS
from keepfed.measure.hook import TimedSampler
from keepfed.measure.records import Contents, Fetch, Iteration
from keepfed.measure.trace import Trace


@dataclass
class Run:
    """One run of a loop: iterations, epochs and fetches."""

    trace: Trace
    dropped: int = 0  # batches at the start of each epoch that do not count as steady
    iterations: list[Iteration] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)  # start of each epoch
    lengths: list[int] = field(default_factory=list)  # batches of each complete epoch
    endings_ns: list[int] = field(default_factory=list)  # time from last iteration to epoch end
    fetches: list[Fetch] = field(default_factory=list)
    cores: set[int] = field(default_factory=set)  # cores that the workers may use
    workers: int = 0
    samplers: list[TimedSampler] = field(default_factory=list)  # one per epoch
    pids: list[int] = field(default_factory=list)  # process IDs of the workers
    next_lock_check_ns: int = 0
    lock_checks: int = 0  # number of checks whether the workers wait for a lock
    lock_waits: int = 0  # checks in which one worker blocked the others
    kept: list[Any] = field(default_factory=list)  # batches for the step alone
    contents: Contents | None = None  # contents of the first batch
    batch_bytes: int = 0
    pickle_s: float = 0.0  # CPU time to pickle and unpickle a batch without its tensors
    children: float = 0.0  # mean number of cores used by child processes
    used_device: bool = False  # whether the step used memory of a real accelerator
    others_cores: float = 0.0  # cores that other programs kept busy
    whole_epochs: bool = False  # whether to run until a second epoch is complete
    copy_s: float = 0.0  # s to copy a batch to a real accelerator while nothing else runs
    next_check: float = ENOUGH_ITERATIONS  # iterations at which `has_enough` compares the halves

    @property
    def steady(self) -> list[tuple[Iteration, Iteration]]:
        """Pairs of a steady iteration and the iteration before it, as (before, steady).

        Only complete rounds of all workers count. The workers deliver in a fixed order, so if one
        is late, the batches of the others arrive together after it.
        """
        pairs = zip(self.iterations, self.iterations[1:], strict=False)
        found = [(a, b) for a, b in pairs if b.epoch == a.epoch and b.place >= self.dropped]
        return found[len(found) % max(1, self.workers) if len(found) > self.workers else 0 :]

    def _steady_s(self, name: str) -> float:
        """Return the mean increase of the running total `name` per iteration, in seconds."""
        grown = [getattr(b, name) - getattr(a, name) for a, b in self.steady]
        return fmean(grown) / 1e9 if grown else 0.0

    @property
    def batch_s(self) -> float:
        """Mean seconds from the end of one iteration to the end of the next."""
        return self._steady_s("left_ns")

    @property
    def whole_s(self) -> float:
        """Mean seconds of an iteration without its wait, over the entire run."""
        if not self.iterations:
            return 0.0
        lasted_ns = self.iterations[-1].left_ns - self.iterations[0].asked_ns
        waited_ns = sum(iteration.wait_ns for iteration in self.iterations)
        return (lasted_ns - waited_ns) / len(self.iterations) / 1e9

    @property
    def later_epochs_s(self) -> float | None:
        """Seconds per batch in the complete epochs after the first, or None if there are none."""
        ends_ns = {one.epoch: one.left_ns for one in self.iterations}
        later = range(1, len(self.lengths))
        lasted_ns = [ends_ns[e] + self.endings_ns[e] - self.starts_ns[e] for e in later]
        count = sum(self.lengths[1:])
        return sum(lasted_ns) / count / 1e9 if count else None

    @property
    def cpu_s(self) -> float:
        """Mean CPU seconds of this process per iteration."""
        return self._steady_s("total_cpu_ns")

    @property
    def delay_s(self) -> float:
        """Mean seconds per iteration in which this process had no core."""
        return self._steady_s("total_delay_ns")

    @property
    def sampling_s(self) -> float:
        """Mean CPU seconds of the sampler per batch."""
        count = sum(sampler.count for sampler in self.samplers)
        return sum(sampler.spent_ns for sampler in self.samplers) / count / 1e9 if count else 0.0

    @property
    def first_s(self) -> float:
        """Seconds to the first batch of an epoch, in the fastest epoch."""
        firsts = (one for one in self.iterations if one.place == 0)
        waits_ns = [one.got_ns - self.starts_ns[one.epoch] for one in firsts]
        return min(waits_ns, default=0) / 1e9

    @property
    def first_again_s(self) -> float:
        """Seconds to the first batch of a later epoch, in the fastest epoch."""
        firsts = (one for one in self.iterations if one.place == 0 and one.epoch)
        waits_ns = [one.got_ns - self.starts_ns[one.epoch] for one in firsts]
        return min(waits_ns, default=0) / 1e9

    @property
    def ending_s(self) -> float:
        """Seconds from the last iteration to the end of the workers, in the fastest epoch.

        The value is 0 if no epoch is complete.
        """
        return min(self.endings_ns, default=0) / 1e9
