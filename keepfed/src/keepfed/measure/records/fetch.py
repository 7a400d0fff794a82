"""The record of one fetch, and who receives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from keepfed.measure.records.span import Row

UNKNOWN = -1  # value of a figure that was not read
LONG_NS = 2_000_000  # ns above which the CPU time of a fetch is always read
SOME = 16  # one of this many short fetches reads the CPU time, because this takes microseconds
MAIN = -1  # worker ID of a batch that the main process builds
DATASET_STAGES = ("read", "decode", "transform")  # stages of a dataset, in the order of `Fetch`


class Fetch(NamedTuple):
    """Cost of fetching one batch, in the process that built it."""

    worker: int
    began_ns: int
    collated_ns: int  # start of collating, when all samples are loaded
    ended_ns: int
    cpu_ns: int = UNKNOWN  # CPU time of the fetching thread
    process_cpu_ns: int = UNKNOWN  # CPU time of all threads of the process, with thread pools
    total_cpu_ns: int = UNKNOWN  # CPU time of the process since its start
    delay_ns: int = 0  # time in which the thread was ready to run but had no core
    read_ns: int = 0  # time of the stages that the dataset names
    decode_ns: int = 0
    transform_ns: int = 0
    asked_bytes: int = UNKNOWN  # bytes that the process has read so far from any file
    disk_bytes: int = UNKNOWN  # part of asked_bytes that came from a disk
    read_calls: int = UNKNOWN  # read system calls of the process so far
    own_bytes: int = UNKNOWN  # private memory of the process
    pool_threads: int = UNKNOWN  # size of the largest thread pool of a numerical library

    @property
    def wall_ns(self) -> int:
        """Duration of the fetch."""
        return self.ended_ns - self.began_ns

    @property
    def collate_ns(self) -> int:
        """Duration of collating, the last part of a fetch."""
        return self.ended_ns - self.collated_ns

    @property
    def computing_ns(self) -> int:
        """Computing time of the fetch, including pool threads that it waited for."""
        computed = max(self.cpu_ns, self.process_cpu_ns)
        return min(computed, max(self.wall_ns - self.delay_ns, self.cpu_ns))


class Contents(NamedTuple):
    """The contents of a batch."""

    objects: int  # Python objects that are pickled one by one
    narrower: str  # smaller dtype that can hold the largest tensor, "" if there is none
    narrower_share: float  # share of the bytes that remain with the smaller dtypes


class Sink:
    """Receiver of fetches, which must be picklable because every worker gets a copy."""

    def worker_started(self, worker_id: int) -> None:
        """Start in this process, which is a worker."""

    def wants(self, index: Any) -> bool:
        """Return whether to measure the fetch of `index`, which begins now."""
        return True

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Receive a fetch and its named stages, and return the batch to pass on."""
        return batch

    def failed(self, error: Exception) -> None:
        """Handle an error of the meter, which ends the measurement. The default raises it."""
        raise error
