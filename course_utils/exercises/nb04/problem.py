"""Machines for exercise 04.1, and the batches that they load."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Machine:
    """A machine and its batches. Times are for one batch, and memory is in 10^6 bytes."""

    read_ms: float  # time in which a worker waits for the storage
    cpu_ms: float  # time in which a worker keeps a core busy
    step_ms: float
    cores: int
    streams: int  # batches that the storage can read at the same time
    worker_mb: float  # memory of a worker without batches
    batch_mb: float
    prefetch_factor: int  # prefetched batches per worker
    free_mb: float  # for all workers, their batches, and the batch in use


MACHINES = {
    "laptop": Machine(10, 110, 60, 4, 32, 500, 50, 2, 6_000),
    "cluster node": Machine(350, 40, 50, 4, 8, 400, 50, 2, 30_000),
    "container": Machine(30, 210, 40, 16, 64, 300, 40, 2, 2_000),
}


def table(machines: Mapping[str, Machine]) -> str:
    """Return a table with a line for each field, and a column for each machine."""
    columns = [asdict(machine) for machine in machines.values()]
    heads = "".join(f"{name:>14}" for name in machines)
    rows = (f"{field:15}" + "".join(f"{one[field]:14,}" for one in columns) for field in columns[0])
    return "\n".join([" " * 15 + heads, *rows])
