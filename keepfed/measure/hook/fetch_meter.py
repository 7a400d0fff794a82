"""Measure what each fetch of a batch costs, in the process that makes it.

Tracing, `diagnose` and `watch` share this meter. They differ in where the figures go: each has a
`Sink` that takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from keepfed.measure.hook.delay import delay_ns
from keepfed.measure.hook.loader_hook import Listener
from keepfed.measure.records import DATASET_STAGES, LONG_NS, MAIN, SOME, UNKNOWN, Fetch, Row
from keepfed.measure.spans import Clock, SpanLog, activate, current

# the last five figures of a `Fetch`, for the worker of that number
AboutProcess = Callable[[int], tuple[int, int, int, int, int]]

_NO_STAGES, _NOT_READ = (0,) * 3, (UNKNOWN,) * 5


class Sink:
    """Takes the figures of each fetch; picklable, for workers get a copy."""

    def worker_started(self, worker_id: int) -> None:
        """Begin in a worker, which is this process."""

    def wants(self, index: Any) -> bool:
        """Return whether the fetch of `index` that begins is to be measured."""
        return True

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Take the figures and the named stages of a fetch; return what goes on as its batch."""
        return batch

    def failed(self, error: Exception) -> None:
        """Handle an error of ours, after which nothing more is measured; raise it by default."""
        raise error


class FetchMeter(Listener):
    """Reads the clocks of the process that fetches, and gives each `Fetch` to its sinks."""

    def __init__(
        self,
        *sinks: Sink,
        sparse: bool = False,
        about_process: AboutProcess | None = None,
        clock: Clock = perf_counter_ns,
    ):
        """Begin.

        Args:
            sinks: the last one may send the figures along with the batch.
            sparse: read the processor time of few of the fetches that are short.
            about_process: what else to tell of the process that fetches.
            clock: of the process that fetches, unless somebody records there by another one.
        """
        self.sinks, self._sparse, self._about_process = sinks, sparse, about_process
        self.worker, self._clock = MAIN, clock
        self._own = SpanLog(
            clock=clock
        )  # of the stages that the dataset names, if nobody else records
        self._log: SpanLog | None = None  # of this fetch; None: it is not measured
        self._began_ns = self._collated_ns = self._first_row = 0
        self._cpu_ns = self._process_ns = self._delay_ns = 0
        self._lasted_ns = self._count = 0
        self._reads = True

    def worker_started(self, worker_id: int) -> None:
        """Begin in a worker, and record the stages for as long as it lives."""
        for sink in self.sinks:
            sink.worker_started(worker_id)
        self.worker, self._own = worker_id, SpanLog(lane=f"worker {worker_id}", clock=self._clock)
        activate(self._own)

    def fetch_begins(self, index: Any) -> None:
        """Read the clocks if a sink wants to know."""
        wanted = [sink.wants(index) for sink in self.sinks]
        log = None
        if any(wanted):
            if (log := current()) is None:
                activate(log := self._own)
            self._first_row = len(log.rows)
            self._reads = not self._sparse or self._lasted_ns > LONG_NS or self._count % SOME == 0
            self._count += 1
            if self._reads:
                self._delay_ns, self._process_ns = delay_ns(), process_time_ns()
            self._cpu_ns = thread_time_ns()  # of every fetch: that it will be slow is not known yet
            self._began_ns = log.clock()
        self._log = log

    def samples_made(self) -> None:
        """Read the clock."""
        if self._log is not None:
            self._collated_ns = self._log.clock()

    def batch_made(self, batch: Any) -> Any:
        """Give the fetch that ends so to the sinks."""
        if (log := self._log) is None:
            return batch
        ended_ns = log.clock()
        self._lasted_ns = ended_ns - self._began_ns
        rows = log.rows[self._first_row :]
        about = _NOT_READ
        if self._about_process is not None and (self._reads or not self._sparse):
            about = self._about_process(self.worker)
        times = self.worker, self._began_ns, self._collated_ns, ended_ns
        stages = _stages(rows) if rows else _NO_STAGES
        fetch = Fetch._make((*times, *self._spent(), *stages, *about))
        if log is self._own:
            log.rows.clear()
            if self.worker == MAIN:
                activate(None)
        for sink in self.sinks:
            batch = sink.take(fetch, rows, batch)
        return batch

    def failed(self, error: Exception) -> None:
        """Stop recording, and leave the error to the sinks."""
        if current() is self._own:
            activate(None)
        for sink in self.sinks:
            sink.failed(error)

    def _spent(self) -> tuple[int, int, int, int]:
        """Return the processor time of thread and process in the fetch, and in all; the delay.

        The delay is how long this thread was ready in the fetch and had no core. For a long fetch
        after short ones it is an upper bound: the delay since it was last read.
        """
        if not (self._reads or self._lasted_ns > LONG_NS):
            return UNKNOWN, UNKNOWN, UNKNOWN, 0
        cpu, total = thread_time_ns() - self._cpu_ns, process_time_ns()
        process_cpu = total - self._process_ns if self._reads else cpu
        delay = min(self._lasted_ns - cpu, delay_ns() - self._delay_ns)
        return cpu, process_cpu, total, max(0, delay)


def _stages(rows: Sequence[Row]) -> tuple[int, ...]:
    """Return how long each of `DATASET_STAGES` took, of those that the dataset names."""
    return tuple(
        sum(end - start for _, stage, start, end, _ in rows if stage == name)
        for name in DATASET_STAGES
    )
