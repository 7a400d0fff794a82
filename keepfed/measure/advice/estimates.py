"""The figures that a verdict rests on, and how they follow from iterations and fetches.

Times are seconds per batch where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, median
from typing import Literal

from keepfed.measure.advice.thresholds import SLOW_FETCH
from keepfed.measure.records import DATASET_STAGES, LONG_NS, UNKNOWN, Fetch
from keepfed.words import duration

Kind = Literal["batches of samples", "samples", "stream", "no DataLoader"]


@dataclass(frozen=True, kw_only=True)
class Paces:
    """How long a batch takes: the loader alone, the step alone, and both together."""

    loader_s: float
    step_s: float
    together_s: float
    wait_s: float  # of together_s: in next()
    step_delay_s: float = 0.0  # of step_s: other programs had the cores
    waited_share: float = 1.0  # of the calls of next(), together: those that found no batch ready
    sampling_s: float = 0.0  # of wait_s: processor time of the sampler, in the main process
    start_up_s: float = 0.0  # per epoch: workers start and end, and nothing is loaded
    filling_s: float = 0.0  # of start_up_s: the first fetch takes so much longer than others
    epoch: int | None = None  # batches in an epoch, if known
    epochs: int = 0  # that the program ran through; 0: not known
    step_cpu_s: float = 0.0  # of step_s: processor time of all threads of the main process


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """What the step consists of."""

    has_device: bool = False  # a GPU, real or emulated
    compute_s: float | None = None  # None if the step says nothing of its device
    transfer_s: float = 0.0  # during which the device did not compute
    host_s: float = 0.0  # in which neither a copy nor a computation ran


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the loader is set up, and what this process may use of the machine."""

    kind: Kind = "samples"
    batch_size: int = 0  # samples that the loader itself puts into a batch, 0: it does not
    made: int = 1  # so many loaders that were alike, one after the other
    has_getitems: bool = False  # the dataset is asked for whole batches
    workers: int = 0
    working: int = 0  # of them have sent a batch; 0: that is not known
    prefetch_factor: int = 2
    start_method: str = ""  # of the workers, now or to come
    cores: int = 1  # that this process may use
    worker_cores: int = 1  # that the workers may use, all together
    free_bytes: float = 1e12  # memory that the machine has left
    others_cores: float = 0.0  # that other programs kept busy


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """What one fetch costs one worker; without workers, the main process."""

    fetch_s: float = 0.0
    computing_s: float = 0.0  # of fetch_s: its processor was at work
    delay_s: float = 0.0  # of fetch_s: it was ready to compute and no core was free
    collate_s: float = 0.0  # of fetch_s
    stages: Mapping[str, float] = field(default_factory=dict)  # that the dataset names
    slow_share: float = 0.0  # share of the fetches that take over SLOW_FETCH times the median
    slow_time: float = 0.0  # share of the fetching time that is lost so
    slowest_s: float = 0.0
    pool_threads: int = 1  # threads that a numerical library may use in a worker
    one_thread_gain: float = 1.0  # how many times faster the loader is with one; 1 if not tried
    asked_bytes: float = 0.0  # read per batch, from whatever file
    disk_bytes: float = 0.0  # of them from a disk
    read_calls: float = 0.0  # system calls that read
    locked_share: float = 0.0  # of the looks at a worker: a lock held it


@dataclass(frozen=True, kw_only=True)
class Moving:
    """What it costs to bring a batch from a worker to the main process."""

    batch_bytes: int = 0
    sending_s: float = 0.0  # processor time of worker and main process beyond the fetch
    receiving_s: float = 0.0  # of it: of the main process
    pickle_s: float = 0.0  # to pickle a batch and back, without its tensors
    objects: int = 0  # of a batch that are pickled one by one
    narrower: str = ""  # a smaller type that holds all values of its largest tensors, if any
    narrower_share: float = 1.0  # of its bytes are left then


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """The memory of all workers together; bytes."""

    own_bytes: float = 0.0  # that each has for itself, when they had loaded a batch
    grown_bytes: float = 0.0  # by which that grew while they were watched
    grown_late_bytes: float = 0.0  # of them in the second half of that time
    watched: int = 0  # batches that were loaded in that time


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What was measured of a loader, a step, and both together."""

    paces: Paces
    step: StepParts = StepParts()
    setting: Setting = Setting()
    fetching: Fetching = Fetching()
    moving: Moving = Moving()
    memory: WorkerMemory = WorkerMemory()

    @property
    def making_s(self) -> float:
        """Time of a fetch if there is always a core for it."""
        return max(0.0, self.fetching.fetch_s - self.fetching.delay_s)

    @property
    def collating_s(self) -> float:
        """Time of the collating if there is always a core for it."""
        fetching = self.fetching
        return fetching.collate_s * self.making_s / fetching.fetch_s if fetching.fetch_s else 0.0

    @property
    def waiting_s(self) -> float:
        """Time of a fetch that neither computed nor waited for a core: storage, or a lock."""
        return max(0.0, self.making_s - self.fetching.computing_s)

    @property
    def occupied_s(self) -> float:
        """Time for which a fetch would compute if the workers had their cores to themselves."""
        cores = max(1, min(self.setting.worker_cores, self.setting.cores))
        return self.fetching.computing_s * max(1.0, self.setting.workers / cores)

    @property
    def pace_s(self) -> float:
        """Time in which the workers could load a batch if no other program took their cores."""
        moving, setting = self.moving, self.setting
        computing = self.fetching.computing_s + max(0.0, moving.sending_s - moving.receiving_s)
        at_once = max(1, min(setting.workers, setting.worker_cores, setting.cores))
        fetching = (self.fetching.computing_s + self.waiting_s) / max(1, setting.workers)
        return max(computing / at_once, fetching, moving.receiving_s)

    @property
    def start_up_share_s(self) -> float:
        """Start-up, and the end of the workers, shared out among the batches of an epoch."""
        return self.paces.start_up_s / self.paces.epoch if self.paces.epoch else 0.0

    @property
    def iteration_s(self) -> float:
        """What one batch costs the loop, its share of the start-up included."""
        return self.paces.together_s + self.start_up_share_s

    @property
    def headroom(self) -> float:
        """How many times faster the loop would be with an infinitely fast loader."""
        return max(1.0, self.iteration_s / self.paces.step_s) if self.paces.step_s else 1.0

    @property
    def in_flight_bytes(self) -> int:
        """Memory of the batches that wait in the queue when the step is slow."""
        in_queue = self.setting.workers * self.setting.prefetch_factor
        return self.moving.batch_bytes * (in_queue + 1)

    @property
    def grown_to_the_end_bytes(self) -> float:
        """Memory by which the workers will have grown when the epoch ends, at the late pace."""
        memory, epoch = self.memory, self.paces.epoch
        if not memory.watched or not epoch:
            return memory.grown_bytes
        left = max(0, epoch - memory.watched)
        return memory.grown_bytes + memory.grown_late_bytes * left / (memory.watched / 2)


def ms(seconds: float) -> str:
    """Return a time of a batch as it reads best."""
    return duration(seconds * 1e9)


def steady(fetches: Sequence[Fetch]) -> list[Fetch]:
    """Leave out the first fetch of each worker, which opens files and imports, if others remain."""
    firsts = _firsts(fetches)
    return [fetch for fetch in fetches if fetch is not firsts[fetch.worker]] or list(fetches)


def fetching_of(fetches: Sequence[Fetch]) -> Fetching:
    """Return what a fetch costs, given fetches in the order in which they ended.

    Of some of them, only the whole time may be known.
    """
    fetches = steady(fetches)
    if not fetches:
        return Fetching()
    walls_ns = [fetch.wall_ns - fetch.delay_ns for fetch in fetches]
    usual_ns = median(walls_ns)
    slow_ns = [wall_ns for wall_ns in walls_ns if wall_ns > SLOW_FETCH * usual_ns]
    lost_ns = sum(wall_ns - usual_ns for wall_ns in slow_ns)
    return Fetching(
        fetch_s=mean_s([fetch.wall_ns for fetch in fetches]),
        computing_s=mean_s(_of_each(fetches, attrgetter("computing_ns"))),
        delay_s=mean_s(_of_each(fetches, attrgetter("delay_ns"))),
        collate_s=_part_s(fetches, attrgetter("collate_ns")),
        stages=_stages(fetches),
        slow_share=len(slow_ns) / len(walls_ns),
        slow_time=lost_ns / max(sum(walls_ns), 1),
        slowest_s=max(walls_ns) / 1e9,
        pool_threads=max(1, *(fetch.pool_threads for fetch in fetches)),
        asked_bytes=_per_fetch(fetches, "asked_bytes"),
        disk_bytes=_per_fetch(fetches, "disk_bytes"),
        read_calls=_per_fetch(fetches, "read_calls"),
    )


def sent_s(fetches: Sequence[Fetch]) -> float:
    """Return the processor time that a worker spends on a batch besides its fetch."""
    fetches = steady(fetches)
    besides, count = 0.0, 0
    fetching_ns = _of_each(fetches, attrgetter("process_cpu_ns"))
    for worker in {fetch.worker for fetch in fetches}:
        own = [both for both in zip(fetches, fetching_ns, strict=True) if both[0].worker == worker]
        read = [place for place, (fetch, _) in enumerate(own) if fetch.total_cpu_ns != UNKNOWN]
        for first, last in pairwise(read):
            spent_ns = own[last][0].total_cpu_ns - own[first][0].total_cpu_ns
            if spent_ns >= 0:  # else the process of another epoch, which counts from zero
                besides += spent_ns - sum(cpu_ns for _, cpu_ns in own[first + 1 : last + 1])
                count += last - first
    return max(0.0, besides / max(1, count) / 1e9)


def cpu_per_batch_s(fetches: Sequence[Fetch]) -> float:
    """Return the processor time of all threads of a worker per batch."""
    return _per_fetch(steady(fetches), "total_cpu_ns") / 1e9


def memory_of(fetches: Sequence[Fetch]) -> WorkerMemory:
    """Return the memory that all workers together had for themselves, and how it grew."""
    first = grown = late = 0.0
    for worker in {fetch.worker for fetch in fetches}:
        own = [f.own_bytes for f in fetches if f.worker == worker and f.own_bytes > 0]
        if len(own) >= 3:
            third = len(own) // 3
            last = median(own[-third:])  # batches come and go
            first, grown = first + own[0], grown + last - own[0]
            late += last - median(own[third:-third])
    return WorkerMemory(
        own_bytes=first, grown_bytes=grown, grown_late_bytes=late, watched=len(fetches)
    )


def start_up_s(first_s: float, fetches: Sequence[Fetch], batch_s: float) -> float:
    """Return how long an epoch's first batch takes beyond a usual fetch.

    Args:
        first_s: seconds until it is there.
        fetches: of the loop.
        batch_s: what a batch takes, if no fetch is known.
    """
    walls_s = [fetch.wall_ns / 1e9 for fetch in steady(fetches)]
    return max(0.0, first_s - median(walls_s or [batch_s]))


def filling_s(fetches: Sequence[Fetch]) -> float:
    """Return how much longer the first fetch of a worker takes than a usual one."""
    if not fetches:
        return 0.0
    usual_ns = median(fetch.wall_ns for fetch in steady(fetches))
    first_ns = median(fetch.wall_ns for fetch in _firsts(fetches).values())
    return max(0.0, first_ns - usual_ns) / 1e9


def _firsts(fetches: Sequence[Fetch]) -> dict[int, Fetch]:
    """Return the first fetch of each worker."""
    return {fetch.worker: fetch for fetch in reversed(fetches)}


def mean_s(times_ns: Sequence[float]) -> float:
    """Return the mean of times in nanoseconds, in seconds; 0 of none."""
    return fmean(times_ns) / 1e9 if times_ns else 0.0


def _of_each(fetches: Sequence[Fetch], figure: Callable[[Fetch], float]) -> list[float]:
    """Return `figure` of each fetch, in nanoseconds; few of the short ones know it.

    Those that do stand for the time of all that are short.
    """
    short = [f for f in fetches if f.cpu_ns != UNKNOWN and f.wall_ns <= LONG_NS]
    share = sum(map(figure, short)) / max(sum(fetch.wall_ns for fetch in short), 1)
    return [figure(f) if f.cpu_ns != UNKNOWN else share * f.wall_ns for f in fetches]


def _part_s(fetches: Sequence[Fetch], part: Callable[[Fetch], float]) -> float:
    """Return the seconds of a fetch that are `part`; of some fetches only the whole is known.

    The others stand for them.
    """
    known = [fetch for fetch in fetches if fetch.collated_ns]
    share = sum(map(part, known)) / max(sum(fetch.wall_ns for fetch in known), 1)
    return share * mean_s([fetch.wall_ns for fetch in fetches])


def _stages(fetches: Sequence[Fetch]) -> Mapping[str, float]:
    parts = {name: _part_s(fetches, attrgetter(f"{name}_ns")) for name in DATASET_STAGES}
    return {name: seconds for name, seconds in parts.items() if seconds}


def _per_fetch(fetches: Sequence[Fetch], name: str) -> float:
    """Return by how much a total of the workers' processes grew for each fetch; some know it."""
    grown = count = 0
    for worker in {fetch.worker for fetch in fetches}:
        own = [getattr(fetch, name) for fetch in fetches if fetch.worker == worker]
        known = [(place, total) for place, total in enumerate(own) if total >= 0]
        for (first, before), (last, after) in pairwise(known):
            if after >= before:  # else a new epoch began with a new process, which counts from zero
                grown, count = grown + after - before, count + last - first
    return grown / count if count else 0.0
