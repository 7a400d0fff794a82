"""Judge the exercises of notebook 04. Here: how many workers a machine needs, and may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong

PREFETCH_FACTOR = 2  # the default of DataLoader


@dataclass(frozen=True, kw_only=True)
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
    "laptop": Machine(
        read_ms=10,
        cpu_ms=110,
        step_ms=60,
        cores=4,
        streams=32,
        worker_mb=500,
        batch_mb=50,
        free_mb=6_000,
    ),
    "cluster node": Machine(
        read_ms=350,
        cpu_ms=40,
        step_ms=50,
        cores=4,
        streams=8,
        worker_mb=400,
        batch_mb=50,
        free_mb=30_000,
    ),
    "container": Machine(
        read_ms=30,
        cpu_ms=210,
        step_ms=40,
        cores=16,
        streams=64,
        worker_mb=300,
        batch_mb=40,
        free_mb=2_000,
    ),
}

Rule = Callable[[Machine], int | None]


def enough(m: Machine) -> int:
    """Return the fewest workers that load as fast as the GPU computes, if nothing else limits."""
    return ceil((m.read_ms + m.cpu_ms) / m.step_ms)


def needed_mb(m: Machine, workers: int) -> float:
    """Return what so many workers hold, each with its share of batches in flight."""
    return workers * (m.worker_mb + PREFETCH_FACTOR * m.batch_mb)


def smallest(m: Machine) -> int | None:
    """Return the fewest workers that keep the GPU busy and fit the memory, or None."""
    workers = enough(m)
    fed = m.cpu_ms / m.cores <= m.step_ms and m.read_ms / m.streams <= m.step_ms
    return workers if fed and needed_mb(m, workers) <= m.free_mb else None


_MANY = 10**9
_GENERAL = "Begin with W = ceil((read_ms + cpu_ms) / step_ms), then look for what forbids it."
_LIMITS = (
    "Return None unless cpu_ms / cores <= step_ms, read_ms / streams <= step_ms, and the memory "
    "suffices."
)

_MISCONCEPTIONS: tuple[tuple[Rule, str, str], ...] = (
    (
        lambda m: smallest(m) or 0,
        "You return 0 where no number of workers will do. With 0 workers the loop loads itself, "
        "and the GPU waits through all of it.",
        "Return None there: it says that something else has to change.",
    ),
    (
        lambda m: m.cores,
        "One worker for each core is a rule that looks at neither the data nor the GPU.",
        _GENERAL,
    ),
    (
        enough,
        "You never return None, though on some machines no W feeds the GPU or fits the memory.",
        _LIMITS,
    ),
    (
        lambda m: smallest(replace(m, free_mb=_MANY)),
        "You leave out the memory. Each worker holds worker_mb and its batches in flight.",
        "Compare W * (worker_mb + 2 * batch_mb) with free_mb.",
    ),
    (
        lambda m: smallest(replace(m, cores=_MANY)),
        "You forget that workers share the cores: however many there are, the machine needs "
        "cpu_ms / cores for a batch.",
        _LIMITS,
    ),
    (
        lambda m: smallest(replace(m, streams=_MANY)),
        "You forget that workers share the storage: however many there are, it needs "
        "read_ms / streams for a batch.",
        _LIMITS,
    ),
    (
        lambda m: smallest(replace(m, cores=_MANY, streams=_MANY)),
        "You forget what the workers share: cores for cpu_ms, storage streams for read_ms.",
        _LIMITS,
    ),
    (
        lambda m: None if enough(m) > m.cores else smallest(m),
        "You allow no more workers than cores. A worker that waits for the storage needs no core: "
        "on the cluster node 8 workers use less than one.",
        "Compare cpu_ms / cores with step_ms, not W with cores.",
    ),
    (
        lambda m: min(enough(m), m.cores),
        "You cut W down to the cores. Then the GPU waits; and a worker that waits for the storage "
        "needs no core at all.",
        _LIMITS,
    ),
    (
        lambda m: smallest(replace(m, batch_mb=0)),
        "You count the workers' own memory, but not the batches that lie ready.",
        "Up to W * prefetch_factor batches are in flight, and prefetch_factor is 2.",
    ),
    (
        lambda m: smallest(replace(m, batch_mb=m.batch_mb / PREFETCH_FACTOR)),
        "You count one batch for each worker. It loads prefetch_factor batches ahead, 2 unless "
        "you say otherwise.",
        "Compare W * (worker_mb + 2 * batch_mb) with free_mb.",
    ),
    (
        lambda m: smallest(m) and int((m.read_ms + m.cpu_ms) / m.step_ms),
        "You round down: then the last bit of loading is done by nobody, and the GPU waits.",
        "Use math.ceil.",
    ),
    (
        lambda m: smallest(m) and round((m.read_ms + m.cpu_ms) / m.step_ms),
        "You round to the nearest number: where it is the lower one the GPU waits.",
        "Use math.ceil.",
    ),
    (
        lambda m: smallest(m) and ceil(m.cpu_ms / m.step_ms),
        "You leave the reading out. While a worker waits for the storage it can do nothing else.",
        _GENERAL,
    ),
    (
        lambda m: smallest(m) and int(m.free_mb / needed_mb(m, 1)),
        "That is the largest number that fits. More workers than needed gain nothing, and each "
        "takes memory and a start.",
        _GENERAL,
    ),
)


@exercise("04.1", title="Choose the number of workers")
def check_choice(choose_workers: Rule) -> Verdict:
    """Expect the smallest W that feeds the GPU and fits, or None, for seen and hidden machines."""
    cases = [*MACHINES.values(), *hidden_machines(60)]
    answers = [choose_workers(machine) for machine in cases]
    for machine, answer in zip(cases, answers, strict=True):
        expect(
            answer is None or (not isinstance(answer, bool) and answer == int(answer)),
            f"For {machine} you return {answer!r}, which is no number of workers.",
            "Return a whole number, or None where no number will do.",
        )
    truths = [smallest(machine) for machine in cases]
    if answers == truths:
        return right(
            "2 workers for the laptop, 8 for the cluster node although it has 4 cores, and none "
            "that fits into the container: take smaller batches there, a leaner dataset, or more "
            f"memory. {len(cases) - 3} hidden machines agree."
        )
    for rule, misconception, next_step in _MISCONCEPTIONS:
        if answers == [rule(machine) for machine in cases]:
            return wrong(misconception, next_step)
    return _first_difference(cases, answers, truths)


def hidden_machines(count: int) -> Sequence[Machine]:
    """Return machines on which each limit decides now and then."""
    rng = np.random.default_rng(4)
    machines: list[Machine] = []
    while len(machines) < count:
        read, cpu, step = rng.integers((5, 5, 30), (400, 300, 90)).tolist()
        cores, streams = rng.integers((1, 1), (13, 19)).tolist()
        worker, batch = rng.integers((50, 10), (400, 150)).tolist()
        roomy = Machine(
            read_ms=read,
            cpu_ms=cpu,
            step_ms=step,
            cores=cores,
            streams=streams,
            worker_mb=worker,
            batch_mb=batch,
            free_mb=_MANY,
        )
        free = round(needed_mb(roomy, enough(roomy)) * float(rng.uniform(0.6, 1.8)))
        machine = replace(roomy, free_mb=free)
        # who counts the batch in use as well is as right
        if smallest(machine) == smallest(replace(machine, free_mb=free - batch)):
            machines.append(machine)
    return machines


def _first_difference(
    cases: Sequence[Machine], answers: Sequence[int | None], truths: Sequence[int | None]
) -> Verdict:
    machine, answer, truth = next(
        row for row in zip(cases, answers, truths, strict=True) if row[1] != row[2]
    )
    if truth is not None and answer is not None:
        said = "leaves the GPU waiting" if answer < truth else "is more than it takes"
        said = f"{answer} workers for it: that {said}"
    else:
        said = "None for it, but there is a W" if answer is None else f"{answer} for it, but no W"
        said += " that feeds the GPU and fits"
    return wrong(f"Take this one: {machine}. You return {said}.", f"{_GENERAL} {_LIMITS}")
