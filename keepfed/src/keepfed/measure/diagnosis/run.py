"""The record of one run of a loop, with the times that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from keepfed.limits import affinity
from keepfed.measure.advice import mean_s
from keepfed.measure.hook import TimedSampler, is_lock_contended
from keepfed.measure.records import Fetch, Iteration
from keepfed.measure.spans import Span, compute_spans
from keepfed.measure.trace import Trace

LOCK_CHECK_NS = 20_000_000  # ns between two checks whether workers wait for a lock


@dataclass
class Run:
    """One run of a loop: iterations, epochs and fetches, without any interpretation."""

    trace: Trace
    dropped: int = 0  # batches at the start of each epoch that do not count as steady
    iterations: list[Iteration] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)  # start of each epoch
    lengths: list[int] = field(default_factory=list)  # batches of each complete epoch
    endings_ns: list[int] = field(default_factory=list)  # time from last iteration to epoch end
    fetches: list[Fetch] = field(default_factory=list)
    samplers: list[TimedSampler] = field(default_factory=list)  # one per epoch
    pids: list[int] = field(default_factory=list)  # process IDs of the workers
    cores: set[int] = field(default_factory=set)  # cores that the workers may use
    lock_checks: list[bool] = field(default_factory=list)  # whether a worker blocked the others
    children_cores: float = 0.0  # mean number of cores used by child processes
    used_device: bool = False  # whether memory of a real accelerator was used
    _next_lock_check_ns: int = 0

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return len(self.pids)

    @property
    def steady(self) -> list[tuple[Iteration, Iteration]]:
        """Pairs of a steady iteration and the iteration before it, as (before, steady).

        Only complete rounds of all workers count. The workers deliver in a fixed order, so if one
        is late, the batches of the others arrive together after it.
        """
        pairs = zip(self.iterations, self.iterations[1:], strict=False)
        steady = [(a, b) for a, b in pairs if b.epoch == a.epoch and b.place >= self.dropped]
        return steady[len(steady) % max(1, self.workers) if len(steady) > self.workers else 0 :]

    @property
    def batch_s(self) -> float:
        """Mean seconds from the end of one iteration to the end of the next."""
        return mean_s([b.left_ns - a.left_ns for a, b in self.steady])

    @property
    def cpu_s(self) -> float:
        """Mean CPU seconds of this process per iteration."""
        return mean_s([b.total_cpu_ns - a.total_cpu_ns for a, b in self.steady])

    @property
    def delay_s(self) -> float:
        """Mean seconds per iteration in which this process had no core."""
        return mean_s([b.total_delay_ns - a.total_delay_ns for a, b in self.steady])

    @property
    def sampling_s(self) -> float:
        """Mean CPU seconds of the sampler per batch, 0 if it was not timed."""
        calls = sum(sampler.count for sampler in self.samplers)
        return sum(sampler.spent_ns for sampler in self.samplers) / max(1, calls) / 1e9

    @property
    def whole_s(self) -> float:
        """Mean seconds of an iteration without its wait, over the entire run."""
        lasted_ns = self.iterations[-1].left_ns - self.iterations[0].asked_ns
        waited_ns = sum(iteration.wait_ns for iteration in self.iterations)
        return (lasted_ns - waited_ns) / len(self.iterations) / 1e9

    def first_s(self, since_epoch: int = 0) -> float | None:
        """Return the seconds to the first batch in the fastest epoch from `since_epoch` on."""
        firsts = [i for i in self.iterations if i.place == 0 and i.epoch >= since_epoch]
        waits_ns = [first.got_ns - self.starts_ns[first.epoch] for first in firsts]
        return min(waits_ns) / 1e9 if waits_ns else None

    def mark_steps(self) -> None:
        """Add the work on each batch to the trace, if the step recorded no computing."""
        if not compute_spans(self.trace.spans):
            for number, iteration in enumerate(self.iterations):
                span = Span("main", "compute", iteration.got_ns, iteration.left_ns, number)
                self.trace.add(span)

    def note_workers(self, iterators: Sequence[Iterator[Any]]) -> None:
        """Record the workers of these iterators, and the cores that they may use."""
        workers = {worker for batches in iterators for worker in getattr(batches, "_workers", ())}
        self.pids = [worker.pid for worker in workers] or self.pids
        self.cores.update(*map(affinity, self.pids))

    def check_locks(self) -> None:
        """Check now and then whether one worker holds a lock that the others need."""
        now_ns = self.iterations[-1].left_ns
        if self.workers > 1 and now_ns > self._next_lock_check_ns:
            self.lock_checks.append(is_lock_contended(self.pids))
            self._next_lock_check_ns = now_ns + LOCK_CHECK_NS
