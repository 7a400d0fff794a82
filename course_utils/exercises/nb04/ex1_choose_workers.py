"""Exercise 04.1: how many workers a machine needs, and may have."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from course_utils.exercises.judging import Kind, Slips, judge_rule, read_whole
from course_utils.exercises.nb04.problem import MACHINES, Machine
from course_utils.teaching.exercise import Verdict, exercise

HIDDEN = 60


def enough(m: Machine) -> int:
    """Return the fewest workers that load as fast as the GPU computes, if nothing else limits."""
    return ceil((m.read_ms + m.cpu_ms) / m.step_ms)


def needed_mb(m: Machine, workers: int) -> float:
    """Return the MB of so many workers, their prefetched batches, and the batch in use."""
    return workers * (m.worker_mb + m.prefetch_factor * m.batch_mb) + m.batch_mb


def smallest(m: Machine) -> int | None:
    """Return the fewest workers that keep the GPU busy and fit the memory, or None."""
    return enough(m) if _is_fed(m) else None


def _is_fed(m: Machine) -> bool:
    """Return whether cores and storage are fast enough, and the workers fit into the memory."""
    keeps_up = m.cpu_ms / m.cores <= m.step_ms and m.read_ms / m.streams <= m.step_ms
    return keeps_up and needed_mb(m, enough(m)) <= m.free_mb


_MANY = 10**9
_LIMITS = (
    "Return None unless cpu_ms / cores <= step_ms, read_ms / streams <= step_ms, and the memory is "
    "enough."
)
_MEMORY = "Compare W * (worker_mb + prefetch_factor * batch_mb) + batch_mb with free_mb."


def _up_to(most: int, workers: int | None) -> int | None:
    return workers if workers and workers <= most else None


def _in_memory(m: Machine) -> int | None:
    return smallest(replace(m, cores=_MANY, streams=_MANY))


SLIPS: Slips[Machine, float | None] = {
    "You allow at most as many workers as there are cores or streams. A worker that waits for the "
    "storage needs no core: the 8 workers of the cluster node need less than one of its 4 cores.": (
        "Compare cpu_ms / cores and read_ms / streams with step_ms, not W with cores.",
        lambda m: _up_to(m.cores, enough(m)),
        lambda m: _up_to(m.cores, _in_memory(m)),
        lambda m: min(enough(m), m.cores),
    ),
    "On some machines no W feeds the GPU and fits into memory. There you return a number, but "
    "with 0 workers, or with this one, the GPU waits or the memory is full.": (
        _LIMITS,
        enough,
        lambda m: smallest(m) or 0,
    ),
    "You leave out the memory. Each worker holds worker_mb and its prefetched batches.": (
        _MEMORY,
        lambda m: smallest(replace(m, free_mb=_MANY)),
    ),
    "You count the wrong number of batches. Each worker holds prefetch_factor prefetched batches, "
    "and the loop holds one more.": (
        _MEMORY,
        lambda m: smallest(replace(m, batch_mb=0)),
        lambda m: smallest(replace(m, free_mb=m.free_mb + m.batch_mb)),
        lambda m: smallest(replace(m, prefetch_factor=1)),
    ),
}


@exercise("04.1", title="Choose the number of workers", seconds=30)
def choose_workers(rule: Callable[[Machine], int | None]) -> Verdict:
    """Expect the smallest W that feeds the GPU and fits, or None, for seen and hidden machines."""
    return judge_rule(
        lambda machine: rule(replace(machine)),  # a copy, because a rule may change its argument
        cases=[*MACHINES.values(), *hidden_machines(HIDDEN)],
        truth=smallest,
        slips=SLIPS,
        answer=Kind(_read, operator.eq),
        praise="2 workers for the laptop, 8 for the cluster node although it has 4 cores, and no W "
        "that fits into the container. It needs smaller batches, a leaner dataset or more memory. "
        f"{HIDDEN} hidden machines agree.",
        call="choose_workers({})".format,
    )


def hidden_machines(count: int) -> Sequence[Machine]:
    """Return machines on which different limits decide, every second one far larger."""
    rng = np.random.default_rng(4)
    low = 5, 5, 30, 1, 1, 50, 10, 2, _MANY
    high = 400, 300, 90, 13, 19, 400, 150, 5, _MANY + 1
    factors = (20, 20, 5, 4, 3, 9, 9, 6, 1)
    machines = [
        Machine(10, 240, 60, 4, 32, 500, 50, 2, 6_000),  # the cores are just enough
        Machine(400, 10, 50, 4, 8, 400, 50, 2, 30_000),
        Machine(10, 40, 60, 4, 8, 400, 50, 2, 550),  # one worker and the batch in use just fit
        Machine(10, 40, 60, 4, 8, 400, 50, 2, 549),
        Machine(1_100, 100, 50, 4, 32, 100, 10, 2, 30_000),
        Machine(9_900, 100, 50, 4, 256, 100, 10, 2, 30_000),
        Machine(29_900, 100, 50, 4, 1_024, 100, 10, 2, 100_000),
        Machine(0.3, 2.4, 0.9, 4, 8, 400, 50, 2, 30_000),  # fractions of a millisecond
        Machine(30, 40, 10, 4, 8, 0.5, 0.25, 1, 5.25),  # fractions of a megabyte
    ]
    while len(machines) < count:
        row = rng.integers(low, high) * (factors if len(machines) % 2 else 1)
        roomy = Machine(*row.tolist())
        free = round(needed_mb(roomy, enough(roomy)) * float(rng.uniform(0.6, 1.8)))
        machines.append(replace(roomy, free_mb=free))
    return machines


def _read(machine: Machine, workers: Any) -> float | None:
    if workers is None:
        return None
    refusal = f"For {machine} you return {workers!r:.60}, which is not a number of workers."
    return read_whole(workers, refusal, "Return a whole number, or None if no number is enough.")
