"""Exercise 04.1: how many workers a machine needs, and may have."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from course_utils.teaching.exercise import Verdict, exercise, expect
from notebooks.exercises.judging import Kind, Slip, judge_rule
from notebooks.exercises.nb04.problem import MACHINES, Machine

PREFETCH_FACTOR = 2  # the default of DataLoader
HIDDEN = 60


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

SLIPS: tuple[Slip[Machine, float | None], ...] = (
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
def choose_workers(rule: Callable[[Machine], int | None]) -> Verdict:
    """Expect the smallest W that feeds the GPU and fits, or None, for seen and hidden machines."""
    return judge_rule(
        rule,
        cases=[*MACHINES.values(), *hidden_machines(HIDDEN)],
        truth=smallest,
        slips=SLIPS,
        answer=Kind(_read, operator.eq),
        praise="2 workers for the laptop, 8 for the cluster node although it has 4 cores, and none "
        "that fits into the container: take smaller batches there, a leaner dataset, or more "
        f"memory. {HIDDEN} hidden machines agree.",
        otherwise=_explain,
    )


def hidden_machines(count: int) -> Sequence[Machine]:
    """Return machines on which each limit decides now and then."""
    rng = np.random.default_rng(4)
    low = 5, 5, 30, 1, 1, 50, 10, _MANY
    high = 400, 300, 90, 13, 19, 400, 150, _MANY + 1
    machines: list[Machine] = []
    while len(machines) < count:
        roomy = Machine(*rng.integers(low, high).tolist())
        free = round(needed_mb(roomy, enough(roomy)) * float(rng.uniform(0.6, 1.8)))
        machine = replace(roomy, free_mb=free)
        # who counts the batch in use as well is as right
        if smallest(machine) == smallest(replace(machine, free_mb=free - roomy.batch_mb)):
            machines.append(machine)
    return machines


def _read(machine: Machine, workers: float | None) -> float | None:
    expect(
        workers is None or (not isinstance(workers, bool) and workers == int(workers)),
        f"For {machine} you return {workers!r}, which is no number of workers.",
        "Return a whole number, or None where no number will do.",
    )
    return workers


def _explain(machine: Machine, answer: float | None, true: float | None) -> tuple[str, str]:
    if true is not None and answer is not None:
        said = "leaves the GPU waiting" if answer < true else "is more than it takes"
        said = f"{answer} workers for it: that {said}"
    else:
        said = "None for it, but there is a W" if answer is None else f"{answer} for it, but no W"
        said += " that feeds the GPU and fits"
    return f"Take this one: {machine}. You return {said}.", f"{_GENERAL} {_LIMITS}"
