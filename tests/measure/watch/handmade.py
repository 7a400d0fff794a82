"""Records of loops that nobody ran."""

from __future__ import annotations

from typing import Any

from course_utils.measure.watch.record import Seen, Totals, Turn

MS = 1e6


def loop(
    *,
    wait: float = 8.0,
    work: float = 2.0,
    fetch: float = 10.0,
    cpu: float = 1.0,
    collate: float = 0.1,
    turns: int = 100,
    slow: dict[int, float] | None = None,
    first: float = 0.0,
    idle: float | None = None,
    **about: Any,
) -> Seen:
    """Return a loop of one epoch; times are ms a batch, `slow` fetches stand by their number."""
    rows, now = [], 1e12
    for number in range(turns):
        waited = wait + (first if not number else 0.0)
        took = (slow or {}).get(number, fetch)
        got = now + waited * MS
        rows.append(
            Turn(
                number, 0.0, number, now, got, got + work * MS, received=0.05 * MS,
                device_idle=-1.0 if idle is None else idle * MS,
                worker=number % max(1, about.get("workers", 2)),
                began=got - took * MS, made=got - collate * MS, done=got,
                cpu=cpu * MS, fetch_cpu=cpu * MS, process_cpu=number * cpu * MS,
            )
        )  # fmt: skip
        now = got + work * MS
    totals = Totals(
        turns=turns, epochs=1, first=1e12, last=now, waited=sum(r.got - r.asked for r in rows),
        worked=turns * work * MS, cores=4,
        device_idle=0.0 if idle is None else turns * idle * MS,
        device_turns=0 if idle is None else turns,
    )  # fmt: skip
    common = {
        "kind": "DataLoader", "takes": "samples", "dataset": "Events", "batch_size": 32,
        "getitems": False, "workers": 2, "prefetch_factor": 2, "persistent": False,
        "start_method": "fork", "at": "train.py:9", "pid": 1, "main_cores": 4,
        "rank": 0, "ranks": 1, "batch_bytes": 4096,
    }  # fmt: skip
    return Seen({**common, **about}, totals, rows)
