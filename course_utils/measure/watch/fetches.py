"""Note in every worker what each fetch cost it, and send that with the batch."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from course_utils.measure.hook import Listener, Parcel, delay_s
from course_utils.measure.spans import SpanLog, activate, current

LONG_NS = 5_000_000  # shorter fetches are not worth asking the system how long they had no core


class Fetch(NamedTuple):
    """What one fetch of one batch cost, in ns; the names are those of `record.Turn`."""

    worker: float
    began: float
    made: float
    done: float
    cpu: float
    fetch_cpu: float
    process_cpu: float
    delay: float
    read: float
    decode: float
    transform: float


class Clocks(Listener):
    """Reads the clocks of the process that fetches; without workers that is the loop's own."""

    def __init__(self) -> None:
        self.worker = -1
        self.cores = 0  # a bit for each that this process may use
        self.fetch: Fetch | None = None  # the last one, without workers
        self._log = SpanLog()  # of the stages that the dataset names
        self._began = self._made = self._cpu = self._process_cpu = 0
        self._delay: float | None = None
        self._lasted = 0

    def worker_started(self, worker_id: int) -> None:
        """Begin in a worker."""
        self.worker, self.cores = worker_id, usable_cores()
        self._log = SpanLog(lane=f"worker {worker_id}")
        activate(self._log)

    def fetch_begins(self, index: Any) -> None:
        """Read the clocks; listen to the stages if nobody else does."""
        if self.worker < 0 and current() is None:
            activate(self._log)
        self._log.drain()
        self._delay = delay_s() if self._lasted > LONG_NS else None
        self._process_cpu, self._cpu = time.process_time_ns(), time.thread_time_ns()
        self._began = time.perf_counter_ns()

    def samples_made(self) -> None:
        """Read the clock."""
        self._made = time.perf_counter_ns()

    def batch_made(self, batch: Any) -> Any:
        """Send on what the fetch cost that ends so."""
        done, cpu = time.perf_counter_ns(), time.thread_time_ns() - self._cpu
        self._lasted = done - self._began
        delay = 0.0 if self._delay is None else 1e9 * (delay_s() - self._delay)
        stages = {"read": 0, "decode": 0, "transform": 0}
        for span in self._log.drain():
            if span.stage in stages:
                stages[span.stage] += span.duration_ns
        total = time.process_time_ns()
        times = self._began, self._made, done, cpu, total - self._process_cpu, total, delay
        self.fetch = Fetch(self.worker, *times, **stages)
        if self.worker < 0:
            if current() is self._log:
                activate(None)
            return batch
        return Parcel(batch, (self.fetch, self.cores))


def usable_cores() -> int:
    """Return a bit for each core that this process may use; 0 where the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return 0
    return sum(1 << core for core in os.sched_getaffinity(0))
