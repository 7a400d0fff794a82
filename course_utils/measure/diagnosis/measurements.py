"""The figures that a verdict rests on; times are seconds per batch where nothing else is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What was measured of a loader, a step, and both together."""

    # the three runs
    loader_s: float
    step_s: float
    together_s: float
    wait_s: float  # of together_s: in next()
    step_delay_s: float = 0.0  # of step_s: other programs had the cores
    waited_share: float = 1.0  # of the calls of next(), together: those that found no batch ready
    start_up_s: float = 0.0  # per epoch: until the first batch, beyond what loading one takes
    epoch: int | None = None  # batches in an epoch, if known

    # what the step is made of; None if the step says nothing of its device
    compute_s: float | None = None
    transfer_s: float = 0.0  # during which the device did not compute
    host_s: float = 0.0  # in which neither a copy nor a computation ran

    # the loader, and what this process has
    workers: int = 0
    prefetch_factor: int = 2
    persistent: bool = False
    pinned: bool = False
    start_method: str = ""  # of the workers
    cores: int = 1  # that this process may use
    worker_cores: int = 1  # that the workers may use, all together

    # one fetch in one worker (without workers: in the main process)
    fetch_s: float = 0.0
    computing_s: float = 0.0  # of fetch_s: its processor was at work
    delay_s: float = 0.0  # of fetch_s: it was ready to compute and no core was free
    collate_s: float = 0.0  # of fetch_s
    stages: Mapping[str, float] = field(default_factory=dict)  # that the dataset names
    slow_share: float = 0.0  # share of the fetches that take over 8 times as long as the median
    slow_time: float = 0.0  # share of the fetching time that is lost so
    slowest_s: float = 0.0
    pool_threads: int = 1  # threads that a numerical library may use in a worker
    one_thread_gain: float = 1.0  # how many times faster the loader is with one; 1 if not tried
    asked_bytes: float = 0.0  # read per batch, from whatever file
    disk_bytes: float = 0.0  # of them from a disk

    # a batch on its way
    batch_bytes: int = 0
    sending_s: float = 0.0  # processor time of worker and main process beyond the fetch
    pickle_s: float = 0.0  # of one batch, forth and back, without its tensors
    receiving_s: float = 0.0  # processor time of the main process for one batch

    # memory of all workers together, bytes
    own_bytes: float = 0.0  # that each has for itself, when they had loaded a batch
    grown_bytes: float = 0.0  # by which that grew while they were watched
    grown_late_bytes: float = 0.0  # of them in the second half of that time
    watched: int = 0  # batches that were loaded meanwhile
    free_bytes: float = 1e12  # what the machine has left

    @property
    def making_s(self) -> float:
        """Time of a fetch if there is always a core for it."""
        return max(0.0, self.fetch_s - self.delay_s)

    @property
    def collating_s(self) -> float:
        """Time of the collating if there is always a core for it."""
        return self.collate_s * self.making_s / self.fetch_s if self.fetch_s else 0.0

    @property
    def waiting_s(self) -> float:
        """Time of a fetch that neither computed nor waited for a core: storage, or a lock."""
        return max(0.0, self.making_s - self.computing_s)

    @property
    def occupied_s(self) -> float:
        """Time for which a fetch would compute if the workers had their cores to themselves."""
        cores = max(1, min(self.worker_cores, self.cores))
        return self.computing_s * max(1.0, self.workers / cores)

    @property
    def pace_s(self) -> float:
        """Time in which the workers could load a batch if no other program took their cores."""
        computing = self.computing_s + max(0.0, self.sending_s - self.receiving_s)
        at_once = max(1, min(self.workers, self.worker_cores, self.cores))
        fetching = (self.computing_s + self.waiting_s) / max(1, self.workers)
        return max(computing / at_once, fetching, self.receiving_s)

    @property
    def start_up_share_s(self) -> float:
        """Start-up shared out among the batches of an epoch."""
        return self.start_up_s / self.epoch if self.epoch else 0.0

    @property
    def turn_s(self) -> float:
        """What one batch costs the loop, its share of the start-up included."""
        return self.together_s + self.start_up_share_s

    @property
    def headspace(self) -> float:
        """How many times faster the loop would be with an infinitely fast loader."""
        return max(1.0, self.turn_s / self.step_s) if self.step_s else 1.0

    @property
    def in_flight_bytes(self) -> int:
        """Memory of the batches that wait in the queue when the step is slow."""
        return self.batch_bytes * (self.workers * self.prefetch_factor + 1)

    @property
    def grown_to_the_end_bytes(self) -> float:
        """Memory by which the workers will have grown when the epoch ends, at the late pace."""
        if not self.watched or not self.epoch:
            return self.grown_bytes
        left = max(0, self.epoch - self.watched)
        return self.grown_bytes + self.grown_late_bytes * left / (self.watched / 2)
