"""The measurements behind a finding, and their estimates from iterations and fetches.

Times are seconds per batch unless a comment gives another unit. A figure is None if it was not
measured, for example because watching cannot run the loader alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, median
from typing import Literal

from keepfed.formatting import duration
from keepfed.measure.advice.thresholds import ENOUGH_TO_SHARE, SLOW_FETCH
from keepfed.measure.records import DATASET_STAGES, LONG_NS, UNKNOWN, Fetch
from keepfed.measure.stacks import Lines

Kind = Literal["batches of samples", "samples", "stream", "no DataLoader"]


@dataclass(frozen=True, kw_only=True)
class Paces:
    """Time per batch of the loader alone, the step alone, and both together."""

    loader_s: float | None
    step_s: float
    together_s: float
    wait_s: float  # time in next(), as part of together_s
    step_delay_s: float | None = None  # part of step_s in which other programs used the cores
    waited_share: float  # share of the next() calls that found no batch ready
    sampling_s: float = 0.0  # CPU time of the sampler in the main process, as part of wait_s
    start_up_s: float | None = None  # s per epoch in which workers start or end and none loads
    filling_s: float = 0.0  # extra time of the first fetch, as part of start_up_s
    epoch: int | None = None  # batches in an epoch
    epochs: int | None = None  # epochs that the program ran
    lost_share: float | None = None  # share of the whole run, with all starts of the workers
    step_cpu_s: float | None = None  # CPU time of all threads of the main process in a step


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """The parts of a step."""

    has_device: bool = False  # whether there is a GPU, real or emulated
    compute_s: float | None = None  # time on the device, if the step records spans
    transfer_s: float | None = None  # time of copies during which the device did not compute
    host_s: float | None = None  # time in which neither a copy nor a computation ran


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of the loader, and the resources this process may use."""

    kind: Kind = "samples"
    batch_size: int = 0  # samples per batch; 0: the loader does not build batches itself
    loaders_made: int | None = None  # number of equal loaders that the program created in turn
    has_getitems: bool = False  # whether the dataset returns all samples of a batch at once
    has_in_order: bool = True  # whether the loader has `in_order`, which is new in torch 2.6
    workers: int = 0
    active_workers: int | None = None  # workers that sent a batch
    prefetch_factor: int = 2
    start_method: str = ""  # start method of the workers, even if there are none yet
    cores: int = 1  # cores that this process may use
    worker_cores: int = 1  # cores that the workers may use together
    free_bytes: float | None = None  # free memory of the machine
    others_cores: float = 0.0  # cores that other programs kept busy


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """Cost of one fetch in a worker, or in the main process if there are no workers."""

    fetch_s: float = 0.0
    computing_s: float = 0.0  # part of fetch_s in which the fetch computed
    delay_s: float = 0.0  # part of fetch_s in which it was ready to run but no core was free
    collate_s: float = 0.0  # part of fetch_s in the collate function
    stages: Mapping[str, float] = field(default_factory=dict)  # time of each named stage
    slow_share: float = 0.0  # share of the fetches that take over SLOW_FETCH times the median
    slow_time: float = 0.0  # share of the fetching time that slow fetches lose
    slowest_s: float = 0.0
    pool_threads: int = 1  # threads that a numerical library may use in a worker
    pool_s: float | None = None  # CPU time of other threads of the process during the fetch
    one_thread_gain: float | None = None  # speed-up of the loader with one thread
    asked_bytes: float | None = None  # bytes read per batch from any file
    disk_bytes: float | None = None  # part of asked_bytes that came from a disk
    read_calls: float | None = None  # system calls that read, per batch
    locked_share: float | None = None  # share of the checks that found a worker waiting for a lock


@dataclass(frozen=True, kw_only=True)
class Moving:
    """Cost of moving a batch from a worker to the main process."""

    batch_bytes: int = 0
    sending_s: float = 0.0  # CPU time of the worker and the main process after the fetch
    receiving_s: float = 0.0  # part of sending_s in the main process
    objects: int | None = None  # Python objects in a batch that are pickled one by one
    narrower: str = ""  # smaller dtype that can hold the largest tensor; "" if there is none
    narrower_share: float = 1.0  # share of the bytes that remain with the smaller dtypes


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """Private memory of all workers together, in bytes."""

    own_bytes: float  # private memory after the first batches
    grown_bytes: float  # growth during the measurement
    grown_late_bytes: float  # part of grown_bytes in the second half
    watched: int  # number of batches in the measurement


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Everything that was measured for one loop."""

    paces: Paces
    step: StepParts = StepParts()
    setting: Setting = Setting()
    fetching: Fetching = Fetching()
    moving: Moving = Moving()
    memory: WorkerMemory | None = None
    lines: Lines = field(default_factory=dict)  # lines of code by part, if stacks were sampled

    @property
    def quiet_step_s(self) -> float:
        """Time of a step if other programs leave it the cores."""
        return self.paces.step_s - (self.paces.step_delay_s or 0.0)

    @property
    def transfer_s(self) -> float:
        """Time of copies during which the device did not compute, as far as it is known."""
        return self.step.transfer_s or 0.0

    @property
    def host_s(self) -> float:
        """Time in which neither a copy nor a computation ran, as far as it is known."""
        return self.step.host_s or 0.0

    @property
    def making_s(self) -> float:
        """Time of a fetch if a core is always free."""
        return max(0.0, self.fetching.fetch_s - self.fetching.delay_s)

    @property
    def collating_s(self) -> float:
        """Time of collating if a core is always free."""
        fetching = self.fetching
        return fetching.collate_s * self.making_s / fetching.fetch_s if fetching.fetch_s else 0.0

    @property
    def waiting_s(self) -> float:
        """Time in which a fetch waits for storage or for a lock."""
        return max(0.0, self.making_s - self.fetching.computing_s)

    @property
    def occupied_s(self) -> float:
        """Computing time of a fetch if only the workers use their cores."""
        cores = max(1, min(self.setting.worker_cores, self.setting.cores))
        return self.fetching.computing_s * max(1.0, self.setting.workers / cores)

    @property
    def start_up_share_s(self) -> float:
        """Start and end of an epoch, divided by its number of batches."""
        return (self.paces.start_up_s or 0.0) / self.paces.epoch if self.paces.epoch else 0.0

    @property
    def iteration_s(self) -> float:
        """Time of an iteration, including its share of the start-up."""
        return self.paces.together_s + self.start_up_share_s

    @property
    def headroom(self) -> float:
        """Speed-up of the loop with an infinitely fast loader."""
        return max(1.0, self.iteration_s / self.paces.step_s) if self.paces.step_s else 1.0

    @property
    def in_flight_bytes(self) -> int:
        """Memory of the queued batches when the step is slow."""
        in_queue = self.setting.workers * self.setting.prefetch_factor
        return self.moving.batch_bytes * (in_queue + 1)


def ms(seconds: float) -> str:
    """Return `seconds` as text with a suitable unit."""
    return duration(seconds * 1e9)


def steady(fetches: Sequence[Fetch]) -> list[Fetch]:
    """Return the fetches without the first one of each worker, unless nothing else is left.

    The first fetch of a worker opens files and imports modules.
    """
    firsts = _firsts(fetches)
    return [fetch for fetch in fetches if fetch is not firsts[fetch.worker]] or list(fetches)


def fetching_of(fetches: Sequence[Fetch]) -> Fetching:
    """Estimate the cost of a fetch from `fetches`, sorted by their end.

    For some of them, only the wall time may be known.
    """
    fetches = steady(fetches)
    if not fetches:
        return Fetching()
    walls_ns = [fetch.wall_ns - fetch.delay_ns for fetch in fetches]
    usual_ns = median(walls_ns)
    slow_ns = [wall_ns for wall_ns in walls_ns if wall_ns > SLOW_FETCH * usual_ns]
    lost_ns = sum(wall_ns - usual_ns for wall_ns in slow_ns)
    known = [f.process_cpu_ns - f.cpu_ns for f in fetches if f.process_cpu_ns != UNKNOWN]
    stages = {name: _part_s(fetches, attrgetter(f"{name}_ns")) for name in DATASET_STAGES}
    return Fetching(
        fetch_s=mean_s([fetch.wall_ns for fetch in fetches]),
        computing_s=mean_s(_of_each(fetches, attrgetter("computing_ns"))),
        delay_s=mean_s(_of_each(fetches, attrgetter("delay_ns"))),
        collate_s=_part_s(fetches, attrgetter("collate_ns")),
        stages={name: part_s for name, part_s in stages.items() if part_s},
        slow_share=len(slow_ns) / len(walls_ns),
        slow_time=lost_ns / max(sum(walls_ns), 1),
        slowest_s=max(walls_ns) / 1e9,
        pool_s=mean_s(known) if known else None,
        pool_threads=max(1, *(fetch.pool_threads for fetch in fetches)),
        asked_bytes=_per_fetch(fetches, "asked_bytes"),
        disk_bytes=_per_fetch(fetches, "disk_bytes"),
        read_calls=_per_fetch(fetches, "read_calls"),
    )


def sent_s(fetches: Sequence[Fetch]) -> float:
    """Return the CPU time that a worker spends on a batch outside its fetch."""
    fetches = steady(fetches)
    besides_ns, count = 0.0, 0
    costs_ns = _of_each(fetches, attrgetter("process_cpu_ns"))
    for worker in {fetch.worker for fetch in fetches}:
        pairs = [p for p in zip(fetches, costs_ns, strict=True) if p[0].worker == worker]
        known = [n for n, (fetch, _) in enumerate(pairs) if fetch.total_cpu_ns != UNKNOWN]
        for first, last in pairwise(known):
            spent_ns = pairs[last][0].total_cpu_ns - pairs[first][0].total_cpu_ns
            if spent_ns >= 0:  # a negative time belongs to the new process of another epoch
                besides_ns += spent_ns - sum(cost_ns for _, cost_ns in pairs[first + 1 : last + 1])
                count += last - first
    return max(0.0, besides_ns / max(1, count) / 1e9)


def active_workers(kind: Kind, workers: int, fetches: Sequence[Fetch]) -> int | None:
    """Return how many workers of a stream sent a batch, or None if too few batches came."""
    known = kind == "stream" and len(fetches) >= ENOUGH_TO_SHARE * workers
    return len({fetch.worker for fetch in fetches}) if known else None


def memory_of(fetches: Sequence[Fetch]) -> WorkerMemory:
    """Return the private memory of all workers together, and its growth."""
    first = grown = late = 0.0
    for worker in {fetch.worker for fetch in fetches}:
        own = [f.own_bytes for f in fetches if f.worker == worker and f.own_bytes > 0]
        if len(own) >= 3:
            third = len(own) // 3
            last = median(own[-third:])  # single values vary with the batches in memory
            first, grown = first + own[0], grown + last - own[0]
            late += last - median(own[third:-third])
    return WorkerMemory(
        own_bytes=first, grown_bytes=grown, grown_late_bytes=late, watched=len(fetches)
    )


def start_up_s(first_s: float, fetches: Sequence[Fetch], batch_s: float) -> float:
    """Return how much longer the first batch of an epoch takes than a usual fetch.

    Args:
        first_s: Seconds until the first batch arrives.
        fetches: Fetches of the loop.
        batch_s: Seconds per batch, used if `fetches` is empty.
    """
    walls_s = [fetch.wall_ns / 1e9 for fetch in steady(fetches)]
    return max(0.0, first_s - median(walls_s or [batch_s]))


def filling_s(fetches: Sequence[Fetch]) -> float:
    """Return how much longer a worker's first fetch takes than a usual one."""
    if not fetches:
        return 0.0
    usual_ns = median(fetch.wall_ns for fetch in steady(fetches))
    first_ns = median(fetch.wall_ns for fetch in _firsts(fetches).values())
    return max(0.0, first_ns - usual_ns) / 1e9


def _firsts(fetches: Sequence[Fetch]) -> dict[int, Fetch]:
    """Return the first fetch of each worker."""
    return {fetch.worker: fetch for fetch in reversed(fetches)}


def mean_s(times_ns: Sequence[float]) -> float:
    """Return the mean of `times_ns` in seconds, or 0 if there are none."""
    return fmean(times_ns) / 1e9 if times_ns else 0.0


def _of_each(fetches: Sequence[Fetch], figure: Callable[[Fetch], float]) -> list[float]:
    """Return `figure` of each fetch, in nanoseconds.

    Only some of the short fetches read their clocks. The others get the mean share of their time.
    """
    short = [f for f in fetches if f.cpu_ns != UNKNOWN and f.wall_ns <= LONG_NS]
    share = sum(map(figure, short)) / max(sum(fetch.wall_ns for fetch in short), 1)
    return [figure(f) if f.cpu_ns != UNKNOWN else share * f.wall_ns for f in fetches]


def _part_s(fetches: Sequence[Fetch], part: Callable[[Fetch], float]) -> float:
    """Return the mean seconds of a fetch in `part`.

    Fetches with a known `part` represent the fetches with only a wall time.
    """
    known = [fetch for fetch in fetches if fetch.collated_ns]
    share = sum(map(part, known)) / max(sum(fetch.wall_ns for fetch in known), 1)
    return share * mean_s([fetch.wall_ns for fetch in fetches])


def _per_fetch(fetches: Sequence[Fetch], name: str) -> float | None:
    """Return the growth of the running total `name` per fetch, from the fetches that have it."""
    grown = count = 0
    for worker in {fetch.worker for fetch in fetches}:
        own = [getattr(fetch, name) for fetch in fetches if fetch.worker == worker]
        known = [(place, total) for place, total in enumerate(own) if total >= 0]
        for (first, before), (last, after) in pairwise(known):
            if after >= before:  # a new epoch starts new processes, whose totals begin at zero
                grown, count = grown + after - before, count + last - first
    return grown / count if count else None
