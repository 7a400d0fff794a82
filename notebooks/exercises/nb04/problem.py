"""What exercise 04.1 is about: machines, and what they have to load."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """A machine and what it has to load; times are for one batch, memory is in 10^6 bytes."""

    read_ms: float  # a worker waits for the storage
    cpu_ms: float  # a worker keeps a core busy
    step_ms: float
    cores: int
    streams: int  # batches that the storage can read at the same time
    worker_mb: float  # what a worker needs for itself
    batch_mb: float
    free_mb: float  # for all workers, and the batches they have ready


MACHINES = {
    "laptop": Machine(10, 110, 60, 4, 32, 500, 50, 6_000),
    "cluster node": Machine(350, 40, 50, 4, 8, 400, 50, 30_000),
    "container": Machine(30, 210, 40, 16, 64, 300, 40, 2_000),
}
