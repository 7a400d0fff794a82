"""Measure the cost of every fetch, in the process that builds the batch.

Tracing, `diagnose` and `watch` share this meter. A worker sends the `Report` of a fetch along with
its batch. In the main process, `FetchMeter.last` is the report of the last fetch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from multiprocessing.sharedctypes import RawArray
from time import process_time_ns, thread_time_ns
from typing import Any, NamedTuple

from keepfed.limits import affinity
from keepfed.measure.hook.loader_hook import Listener, attach_report
from keepfed.measure.hook.process_figures import ProcessFigures, delay_ns
from keepfed.measure.records import DATASET_STAGES, LONG_NS, MAIN, SOME, UNKNOWN, Fetch, Row
from keepfed.measure.spans import SpanLog, activate, current

Ids = Sequence[Hashable] | None

_NO_STAGES, _NOT_READ = (0,) * 3, (UNKNOWN,) * 5


class Report(NamedTuple):
    """What the process that built a batch tells about it."""

    fetch: Fetch
    cores: int = 0  # in a worker, one bit for each core that it may use
    rows: Sequence[Row] = ()  # spans of the fetch that no trace has yet
    note: str = ""  # note of the worker's trace
    ids: Ids = None  # indices of the samples


class FetchMeter(Listener):
    """Reads the clocks of the fetching process."""

    def __init__(
        self,
        figures: ProcessFigures | None = None,
        *,
        spans: bool = True,
        persistent: bool = False,
    ):
        """Create a meter that is on.

        Args:
            figures: Reads further figures of the fetching process. Without those of its memory, the
                meter also reads the CPU time for only a few of the short fetches.
            spans: Whether to report spans and the indices of the samples.
            persistent: Whether `on` is in shared memory, because persistent workers outlive the
                loop in which they were started.
        """
        self.on: Any = RawArray("B", [True]) if persistent else [True]
        self.last: Report | None = None  # of this process
        self._spans, self._sparse = spans, figures is None or not figures.memory
        self._figures, self._worker, self._cores = figures, MAIN, 0
        # Records the stages that the dataset names if no other trace is recording.
        self._own = SpanLog()
        self._log: SpanLog | None = None  # log of this fetch, None if it is not measured
        self._index: Any = None
        self._began_ns = self._collated_ns = self._first_row = 0
        self._cpu_ns = self._process_ns = self._delay_ns = 0
        self._lasted_ns = self._count = 0
        self._reads = True

    def worker_started(self, worker_id: int) -> None:
        """Start in a worker, and record its stages until it ends."""
        self._worker, self._cores = worker_id, sum(1 << core for core in affinity())
        self._own = SpanLog(lane=f"worker {worker_id}")
        activate(self._own)

    def fetch_begins(self, index: Any) -> None:
        """Read the clocks if the meter is on."""
        log = current() if self.on[0] else None
        if log is None and self.on[0] and (self._worker != MAIN or not self._spans):
            activate(log := self._own)
        self._log, self._index = log, index
        if log is None:
            return
        self._first_row = len(log.rows)
        self._reads = not self._sparse or self._lasted_ns > LONG_NS or self._count % SOME == 0
        self._count += 1
        if self._reads:
            self._delay_ns, self._process_ns = delay_ns(), process_time_ns()
        self._cpu_ns = thread_time_ns()  # always needed, because the fetch may become long
        self._began_ns = log.clock()

    def samples_made(self, samples: Any) -> None:
        """Record the start of collating."""
        if self._log is not None:
            self._collated_ns = self._log.clock()

    def batch_made(self, batch: Any) -> Any:
        """Report the fetch that ends now."""
        if (log := self._log) is None:
            return batch
        ended_ns = log.clock()
        self._lasted_ns = ended_ns - self._began_ns
        rows = log.rows[self._first_row :]
        figures = self._figures(self._worker) if self._figures and self._reads else _NOT_READ
        times = self._worker, self._began_ns, self._collated_ns, ended_ns
        stages = _stages(rows) if rows else _NO_STAGES
        report = Report(Fetch._make((*times, *self._spent(), *stages, *figures)), self._cores)
        if self._spans:
            report = report._replace(
                rows=self._new_rows(log, rows, ended_ns), note=log.note, ids=indices(self._index)
            )
        if log is self._own:
            log.rows.clear()
            if self._worker == MAIN:
                activate(None)
        if self._worker != MAIN:
            return attach_report(batch, (tuple(report.fetch), *report[1:]))
        self.last = report
        return batch

    def failed(self, error: Exception) -> None:
        """Stop recording, and raise the error."""
        self.last = None
        if current() is self._own:
            activate(None)
        raise error

    def _new_rows(self, log: SpanLog, rows: list[Row], ended_ns: int) -> list[Row]:
        """Return the spans that the main process does not know yet."""
        spans = list[Row]()
        if not rows:
            spans.append((log.lane, "read", self._began_ns, self._collated_ns, log.batch))
        spans.append((log.lane, "collate", self._collated_ns, ended_ns, log.batch))
        return spans if self._worker == MAIN else [*rows, *spans]

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


def received_report(sent: Any) -> Report:
    """Return a report as the worker made it."""
    fetch, *more = sent
    return Report(Fetch._make(fetch), *more)


def indices(index: Any) -> Ids:
    """Return the indices of a batch as numbers, or None if there are none."""
    index = plain(index)
    several = isinstance(index, list) or (isinstance(index, Sequence) and type(index) is not str)
    # Check for int first, because calling `plain` for every index would double the time.
    ids = [i if type(i) is int else plain(i) for i in index] if several else [index]
    return None if None in ids else ids


def plain(value: Any) -> Any:
    """Return tensors and arrays as numbers or lists, because equal tensors are different keys."""
    return value.tolist() if hasattr(value, "tolist") else value


def _stages(rows: Sequence[Row]) -> tuple[int, ...]:
    """Return the time of each of `DATASET_STAGES` in ns, 0 if the dataset does not name it."""
    return tuple(
        sum(end - start for _, stage, start, end, _ in rows if stage == name)
        for name in DATASET_STAGES
    )
