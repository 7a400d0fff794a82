"""The records of a training loop: spans, fetches with their contents, and iterations.

Traces, `diagnose` and `watch` all write these records. Times are integer nanoseconds of
`time.perf_counter_ns`, which is one clock for all processes of a machine. The module needs only
the standard library.
"""

from __future__ import annotations

from typing import NamedTuple

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


class Iteration(NamedTuple):
    """One iteration of a loop: a call of next() and the work on its batch."""

    number: int
    epoch: int
    place: int  # index within the epoch
    asked_ns: int  # start of next()
    got_ns: int  # end of next()
    left_ns: int = 0  # end of the work on the batch, 0 if not yet finished, or UNKNOWN
    receiving_ns: int = UNKNOWN  # CPU time of the main thread in next()
    device_idle_ns: int = UNKNOWN  # idle time during next(), by the clock of the device
    device_work_ns: int = UNKNOWN  # time from the batch to the following next(), by the same clock
    total_cpu_ns: int = UNKNOWN  # CPU time of the process from its start to left_ns
    total_delay_ns: int = UNKNOWN  # total time until left_ns in which the main thread had no core

    @property
    def wait_ns(self) -> int:
        """Duration of next()."""
        return self.got_ns - self.asked_ns


def warm_up_batches(prefetched: int, length: int | None) -> int:
    """Return how many first batches of an epoch to drop before the throughput is steady."""
    return min(prefetched + 1, max(1, (length if length is not None else 2**62) // 2))


class Span(NamedTuple):
    """One interval of work or waiting on one lane.

    Times are nanoseconds of `time.perf_counter_ns`, one clock for all processes of a machine.
    """

    lane: str
    stage: str
    start_ns: int
    end_ns: int
    batch: int = -1  # index of the batch, -1 for a span without a batch

    @property
    def duration_ns(self) -> int:
        """Length of the span in nanoseconds."""
        return self.end_ns - self.start_ns


Row = tuple[str, str, int, int, int]  # the fields of a Span
