"""What a loop did: its iterations, epochs and fetches, and the paces that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from keepfed.measure.advice.thresholds import ENOUGH_ITERATIONS
from keepfed.measure.hook import Contents, TimedSampler
from keepfed.measure.records import Fetch, Iteration
from keepfed.measure.trace import Trace


@dataclass
class Run:
    """What a loop did."""

    trace: Trace
    dropped: int = 0  # first batches of each epoch that say nothing about the steady rate
    iterations: list[Iteration] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)  # when each epoch was begun
    lengths: list[int] = field(default_factory=list)  # of the epochs that came to their end
    endings_ns: list[int] = field(default_factory=list)  # of theirs, after the last iteration
    fetches: list[Fetch] = field(default_factory=list)
    cores: set[int] = field(default_factory=set)  # that the workers may use
    workers: int = 0
    samplers: list[TimedSampler] = field(default_factory=list)  # of the epochs
    pids: list[int] = field(default_factory=list)  # of the workers
    next_lock_check_ns: int = 0
    lock_checks: int = 0  # at what the workers wait for
    lock_waits: int = 0  # of them found that one held up the others
    kept: list[Any] = field(default_factory=list)
    contents: Contents | None = None  # of a batch
    batch_bytes: int = 0
    pickle_s: float = 0.0  # processor seconds to pickle a batch and back, without its tensors
    children: float = 0.0  # cores that processes started by this one kept busy, on average
    used_device: bool = False  # took memory of a real accelerator
    others_cores: float = 0.0  # that other programs kept busy
    whole_epochs: bool = False  # are to be run
    copy_s: float = 0.0  # seconds that copying a batch to a real accelerator takes by itself
    next_check: float = ENOUGH_ITERATIONS  # when there are so many, whether they are enough

    @property
    def steady(self) -> list[tuple[Iteration, Iteration]]:
        """The iterations that count, each with the one before it.

        They are whole rounds of the workers, which take turns: if one is late, the batches of the
        others come all at once after its own.
        """
        pairs = zip(self.iterations, self.iterations[1:], strict=False)
        found = [(a, b) for a, b in pairs if b.epoch == a.epoch and b.place >= self.dropped]
        return found[len(found) % max(1, self.workers) if len(found) > self.workers else 0 :]

    def _steady_s(self, name: str) -> float:
        """Return by how much the figure `name` grew in an iteration, on average."""
        grown = [getattr(b, name) - getattr(a, name) for a, b in self.steady]
        return fmean(grown) / 1e9 if grown else 0.0

    @property
    def batch_s(self) -> float:
        """Seconds from the end of one iteration to the end of the next, on average."""
        return self._steady_s("left_ns")

    @property
    def whole_s(self) -> float:
        """Seconds of an iteration without its wait, on average over all of them to the very end."""
        if not self.iterations:
            return 0.0
        lasted_ns = self.iterations[-1].left_ns - self.iterations[0].asked_ns
        waited_ns = sum(iteration.wait_ns for iteration in self.iterations)
        return (lasted_ns - waited_ns) / len(self.iterations) / 1e9

    @property
    def later_epochs_s(self) -> float | None:
        """Seconds of a batch in whole epochs after the first, all that they take; None if none."""
        ends_ns = {one.epoch: one.left_ns for one in self.iterations}
        later = range(1, len(self.lengths))
        lasted_ns = [ends_ns[e] + self.endings_ns[e] - self.starts_ns[e] for e in later]
        count = sum(self.lengths[1:])
        return sum(lasted_ns) / count / 1e9 if count else None

    @property
    def cpu_s(self) -> float:
        """Processor seconds of this process in an iteration, on average."""
        return self._steady_s("total_cpu_ns")

    @property
    def delay_s(self) -> float:
        """Seconds of an iteration for which this process had no core, on average."""
        return self._steady_s("total_delay_ns")

    @property
    def sampling_s(self) -> float:
        """Processor seconds of the sampler for a batch, on average."""
        count = sum(sampler.count for sampler in self.samplers)
        return sum(sampler.spent_ns for sampler in self.samplers) / count / 1e9 if count else 0.0

    @property
    def first_s(self) -> float:
        """Seconds until an epoch gave its first batch; of several epochs the quickest."""
        firsts = (one for one in self.iterations if one.place == 0)
        waits_ns = [one.got_ns - self.starts_ns[one.epoch] for one in firsts]
        return min(waits_ns, default=0) / 1e9

    @property
    def first_again_s(self) -> float:
        """Seconds until a later epoch gave its first batch; of several epochs the quickest."""
        firsts = (one for one in self.iterations if one.place == 0 and one.epoch)
        waits_ns = [one.got_ns - self.starts_ns[one.epoch] for one in firsts]
        return min(waits_ns, default=0) / 1e9

    @property
    def ending_s(self) -> float:
        """Seconds until an epoch was over after its last iteration: its workers end.

        Of several epochs the quickest; 0 if none came to its end.
        """
        return min(self.endings_ns, default=0) / 1e9
