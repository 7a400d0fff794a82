"""Handmade records of watched loops."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from keepfed.measure.records import UNKNOWN, Fetch, Iteration
from keepfed.measure.watch.timing.ring_file import Observation, Totals

MS = 1_000_000
Observed = Callable[[], list[Observation]]


def loop(
    *,
    wait: float = 8.0,
    work: float = 2.0,
    fetch: float = 10.0,
    cpu: float = 1.0,
    collate: float = 0.1,
    count: int = 100,
    slow: dict[int, float] | None = None,
    first: float = 0.0,
    idle: float | None = None,
    **about: Any,
) -> Observation:
    """Return a loop of one epoch; times are ms per batch, `slow` maps indices to fetch times."""
    iterations, fetches, now_ns = list[Iteration](), dict[int, Fetch](), 10**12
    cpu_ns, work_ns = round(cpu * MS), round(work * MS)
    idle_ns = UNKNOWN if idle is None else round(idle * MS)
    for number in range(count):
        waited = wait + (first if not number else 0.0)
        took = (slow or {}).get(number, fetch)
        got_ns = now_ns + round(waited * MS)
        row = number, 0, number, now_ns, got_ns, got_ns + work_ns, MS // 20
        iterations.append(Iteration(*row, device_idle_ns=idle_ns))
        fetches[number] = Fetch(
            number % max(1, about.get("workers", 2)),
            got_ns - round(took * MS), got_ns - round(collate * MS), got_ns,
            cpu_ns, cpu_ns, number * cpu_ns,
        )  # fmt: skip
        now_ns = got_ns + work_ns
    totals = Totals(
        iterations=count, epochs=1, first_ns=10**12, last_ns=now_ns,
        waited_ns=sum(one.wait_ns for one in iterations), worked_ns=count * work_ns, cores=4,
        device_idle_ns=0 if idle is None else count * idle_ns,
        device_iterations=0 if idle is None else count,
    )  # fmt: skip
    common = {
        "kind": "DataLoader", "takes": "samples", "dataset": "Events", "batch_size": 32,
        "getitems": False, "workers": 2, "prefetch_factor": 2, "persistent": False,
        "start_method": "fork", "at": "train.py:9", "pid": 1, "main_cores": 4,
        "rank": 0, "ranks": 1, "made": 1, "batch_bytes": 4096,
    }  # fmt: skip
    return Observation({**common, **about}, totals, iterations, fetches, Path())
