"""What exercise 04.1 is about: machines, and what they have to load."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass


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
    prefetch_factor: int  # batches that each worker keeps ready
    free_mb: float  # for all workers, their batches, and the one in use


MACHINES = {
    "laptop": Machine(10, 110, 60, 4, 32, 500, 50, 2, 6_000),
    "cluster node": Machine(350, 40, 50, 4, 8, 400, 50, 2, 30_000),
    "container": Machine(30, 210, 40, 16, 64, 300, 40, 2, 2_000),
}


def table(machines: Mapping[str, Machine]) -> str:
    """Return a line for each field, with a column for each machine."""
    columns = [asdict(machine) for machine in machines.values()]
    heads = "".join(f"{name:>14}" for name in machines)
    rows = (f"{field:15}" + "".join(f"{one[field]:14,}" for one in columns) for field in columns[0])
    return "\n".join([" " * 15 + heads, *rows])
