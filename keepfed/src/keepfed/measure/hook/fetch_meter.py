"""Measure the cost of every fetch, in the process that builds the batch.

Tracing, `diagnose` and `watch` share this meter. Each of them uses its own `Sink`, which receives
the measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from keepfed.measure.hook.delay import delay_ns
from keepfed.measure.hook.loader_hook import Listener
from keepfed.measure.records import (
    DATASET_STAGES,
    LONG_NS,
    MAIN,
    SOME,
    UNKNOWN,
    Fetch,
    Row,
    Sink,
)
from keepfed.measure.spans import Clock, SpanLog, activate, current

# Function that returns the last five fields of a `Fetch` for a worker ID
AboutProcess = Callable[[int], tuple[int, int, int, int, int]]

_NO_STAGES, _NOT_READ = (0,) * 3, (UNKNOWN,) * 5


class FetchMeter(Listener):
    """Reads the clocks of the fetching process, and passes each `Fetch` to its sinks."""

    def __init__(
        self,
        *sinks: Sink,
        sparse: bool = False,
        about_process: AboutProcess | None = None,
        clock: Clock = perf_counter_ns,
    ):
        """Create a meter.

        Args:
            sinks: Receivers of the fetches. The last one may send the fetch along with the batch.
            sparse: If True, read the CPU time for only a few of the short fetches.
            about_process: Function that returns further figures of the fetching process.
            clock: Clock of the fetching process, unless a trace with another clock records there.
        """
        self.sinks, self._sparse, self._about_process = sinks, sparse, about_process
        self.worker, self._clock = MAIN, clock
        # Records the stages that the dataset names if no other trace is recording.
        self._own = SpanLog(clock=clock)
        self._log: SpanLog | None = None  # log of this fetch, None if it is not measured
        self._began_ns = self._collated_ns = self._first_row = 0
        self._cpu_ns = self._process_ns = self._delay_ns = 0
        self._lasted_ns = self._count = 0
        self._reads = True

    def worker_started(self, worker_id: int) -> None:
        """Start in a worker, and record its stages until it ends."""
        for sink in self.sinks:
            sink.worker_started(worker_id)
        self.worker, self._own = worker_id, SpanLog(lane=f"worker {worker_id}", clock=self._clock)
        activate(self._own)

    def fetch_begins(self, index: Any) -> None:
        """Read the clocks if a sink wants this fetch."""
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
            self._cpu_ns = thread_time_ns()  # always needed, because the fetch may become long
            self._began_ns = log.clock()
        self._log = log

    def samples_made(self, samples: Any) -> None:
        """Record the start of collating."""
        if self._log is not None:
            self._collated_ns = self._log.clock()

    def batch_made(self, batch: Any) -> Any:
        """Pass the fetch that ends now to the sinks."""
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
        """Stop recording, and pass the error to the sinks."""
        if current() is self._own:
            activate(None)
        for sink in self.sinks:
            sink.failed(error)

    def _spent(self) -> tuple[int, int, int, int]:
        """Return the CPU times and the run-queue delay of the fetch.

        Returns:
            CPU time of the thread in the fetch, of the process in the fetch, of the process since
            its start, and the delay, in ns. For a long fetch after short ones the delay is an upper
            bound, because the system counts it since the last reading.
        """
        if not (self._reads or self._lasted_ns > LONG_NS):
            return UNKNOWN, UNKNOWN, UNKNOWN, 0
        cpu, total = thread_time_ns() - self._cpu_ns, process_time_ns()
        process_cpu = total - self._process_ns if self._reads else cpu
        delay = min(self._lasted_ns - cpu, delay_ns() - self._delay_ns)
        return cpu, process_cpu, total, max(0, delay)


def _stages(rows: Sequence[Row]) -> tuple[int, ...]:
    """Return the time of each of `DATASET_STAGES` in ns, 0 if the dataset does not name it."""
    return tuple(
        sum(end - start for _, stage, start, end, _ in rows if stage == name)
        for name in DATASET_STAGES
    )
