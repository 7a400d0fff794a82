"""Note in every worker what each fetch cost it, and send that with the batch."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from course_utils.limits import affinity
from course_utils.measure.hook import Listener, delay_s, packed
from course_utils.measure.spans import SpanLog, activate
from course_utils.measure.watch.record import LONG_NS, SOME, STAGES, UNKNOWN

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # macOS and Windows
    RUSAGE_THREAD = None  # type: ignore[assignment, misc]

LONG_ENOUGH_NS = 5_000_000  # of a fetch, to ask the system how long it had no core


# what one fetch of one batch cost, in ns: the fields of `record.Turn` from `worker` on
Cost = tuple[float, ...]
_NO_STAGES = 0.0, 0.0, 0.0
_NOT_READ = UNKNOWN, UNKNOWN, UNKNOWN


class Clocks(Listener):
    """Reads the clocks of the process that fetches; without workers that is the loop's own."""

    def __init__(self, *, lasting: bool = False) -> None:
        """Begin; `lasting` workers, which outlive the loop, look whether anybody listens."""
        self.taken: torch.Tensor | None = None
        if lasting:
            self.taken = torch.ones(1, dtype=torch.uint8)
            self.taken.share_memory_()  # type: ignore[no-untyped-call]
        self._sends: Any = (True,)
        self.worker = -1
        self.cores = 0  # a bit for each that this process may use
        self.fetch: Cost | None = None  # the last one, without workers
        self._log = SpanLog()  # of the stages that the dataset names
        self._others: SpanLog | None = None  # that records here
        self._began = self._made = self._cpu = self._process_cpu = 0
        self._delay: float | None = None
        self._waits = math.nan
        self._lasted = self._count = 0
        self._reads = False

    def worker_started(self, worker_id: int) -> None:
        """Begin in a worker."""
        self.worker, self.cores = worker_id, core_bits()
        self._log = SpanLog(lane=f"worker {worker_id}")
        activate(self._log)
        if self.taken is not None:
            self._sends = self.taken.numpy().data

    def fetch_begins(self, index: Any) -> None:
        """Read the clocks; listen to the stages if nobody else does."""
        if self.worker < 0 and (others := activate(self._log)) is not self._log:
            self._others = others
            if others is not None:
                activate(others)
        self._log.rows.clear()
        self._delay = delay_s() if self._lasted > LONG_ENOUGH_NS else None
        self._count += 1
        self._reads = self._lasted > LONG_NS or self._count % SOME == 0
        if self._reads:
            self._process_cpu = time.process_time_ns()
        # of every fetch: that it will be slow is not known yet
        self._waits, self._cpu = waits(), time.thread_time_ns()
        self._began = time.perf_counter_ns()

    def samples_made(self) -> None:
        """Read the clock."""
        self._made = time.perf_counter_ns()

    def batch_made(self, batch: Any) -> Any:
        """Send on what the fetch cost that ends so."""
        done = time.perf_counter_ns()
        self._lasted = done - self._began
        delay, cpu = 0.0, _NOT_READ
        if self._reads or self._lasted > LONG_NS:
            cpu = self._processor()
            delay = self._without_core(cpu[0])
        stages = self._stages() if self._log.rows else _NO_STAGES
        self.fetch = self.worker, self._began, self._made, done, *cpu, delay, *stages
        if self.worker < 0:
            activate(self._others)
            return batch
        return packed(batch, (self.fetch, self.cores)) if self._sends[0] else batch

    def _processor(self) -> tuple[float, float, float]:
        """Return the processor time of this thread and this process in the fetch, and in all."""
        cpu, total = time.thread_time_ns() - self._cpu, time.process_time_ns()
        fetch_cpu = total - self._process_cpu if self._reads else cpu
        return cpu, fetch_cpu, total

    def _without_core(self, cpu: float) -> float:
        """Return how long this thread was ready in the fetch and had no core.

        A thread that has not waited of its own accord was ready all the time. Of a short fetch that
        has, it is not known, and counts as waiting.
        """
        if self._delay is not None:
            return 1e9 * (delay_s() - self._delay)
        return max(0.0, self._lasted - cpu) if waits() == self._waits else 0.0

    def _stages(self) -> Cost:
        """Return how long each of `record.STAGES` took, of those that the dataset names."""
        spans = self._log.spans
        return tuple(sum(s.duration_ns for s in spans if s.stage == name) for name in STAGES)


def waits() -> float:
    """Return how often this thread has waited of its own accord, for a file, a lock or a sleep.

    Where the system does not tell, it is NaN, which equals nothing.
    """
    return getrusage(RUSAGE_THREAD).ru_nvcsw if RUSAGE_THREAD is not None else math.nan


def core_bits() -> int:
    """Return a bit for each core that this process may use; 0 where the system does not tell."""
    return sum(1 << core for core in affinity())
