"""Note in every worker what each fetch cost it, and send that with the batch."""

from __future__ import annotations

from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

import torch

from course_utils.limits import affinity
from course_utils.measure.hook import Listener, delay_s, packed
from course_utils.measure.spans import SpanLog, activate
from course_utils.measure.watch.harmless import give_up
from course_utils.measure.watch.record import LONG_NS, NO_STAGES, SOME, STAGES, UNKNOWN

# what one fetch of one batch cost, in ns: the fields of `record.Turn` from `worker` on
Cost = tuple[float, ...]
_NOT_READ = UNKNOWN, UNKNOWN, UNKNOWN


class Clocks(Listener):
    """Reads the clocks of the process that fetches; without workers that is the loop's own."""

    def __init__(self, *, lasting: bool = False) -> None:
        """Begin; `lasting` workers, which outlive the loop, look whether anybody listens."""
        self.taken: torch.Tensor | None = None
        if lasting:
            self.taken = torch.ones(1, dtype=torch.uint8, device="cpu")
            self.taken.share_memory_()  # type: ignore[no-untyped-call]
        self._sends: Any = (True,)
        self.worker = -1
        self.cores = 0  # a bit for each that this process may use
        self.fetch: Cost | None = None  # the last one, without workers
        self._log = SpanLog()  # of the stages that the dataset names
        self._others: SpanLog | None = None  # that records here
        self._began = self._made = self._cpu = self._process_cpu = 0
        self._delay = 0.0
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
        self._reads = self._lasted > LONG_NS or self._count % SOME == 0
        self._count += 1
        if self._reads:
            self._delay, self._process_cpu = delay_s(), process_time_ns()
        self._cpu = thread_time_ns()  # of every fetch: that it will be slow is not known yet
        self._began = perf_counter_ns()

    def samples_made(self) -> None:
        """Read the clock."""
        self._made = perf_counter_ns()

    def batch_made(self, batch: Any) -> Any:
        """Send on what the fetch cost that ends so."""
        done = perf_counter_ns()
        self._lasted = done - self._began
        delay, cpu = 0.0, _NOT_READ
        if self._reads or self._lasted > LONG_NS:
            cpu = self._processor()
            delay = self._without_core(cpu[0])
        stages = self._stages() if self._log.rows else NO_STAGES
        self.fetch = self.worker, self._began, self._made, done, *cpu, delay, *stages
        if self.worker < 0:
            activate(self._others)
            return batch
        return packed(batch, (self.fetch, self.cores)) if self._sends[0] else batch

    def failed(self, error: Exception) -> None:
        """Let the process continue unwatched."""
        activate(self._others if self.worker < 0 else None)
        self.fetch = None
        give_up(error)

    def _processor(self) -> tuple[float, float, float]:
        """Return the processor time of this thread and this process in the fetch, and in all."""
        cpu, total = thread_time_ns() - self._cpu, process_time_ns()
        fetch_cpu = total - self._process_cpu if self._reads else cpu
        return cpu, fetch_cpu, total

    def _without_core(self, cpu: float) -> float:
        """Return how long this thread was ready in the fetch and had no core.

        Of a fetch that is long after a short one it is what that was since it was read, at most.
        """
        return max(0.0, min(self._lasted - cpu, 1e9 * (delay_s() - self._delay)))

    def _stages(self) -> Cost:
        """Return how long each of `record.STAGES` took, of those that the dataset names."""
        spans = self._log.spans
        return tuple(sum(s.duration_ns for s in spans if s.stage == name) for name in STAGES)


def core_bits() -> int:
    """Return a bit for each core that this process may use; 0 where the system does not tell."""
    return sum(1 << core for core in affinity())
