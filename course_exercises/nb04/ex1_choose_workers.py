"""Exercise 04.1: how many workers a machine needs, and may have."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from course_exercises.judging import Kind, Slips, judge_rule, read_whole
from course_exercises.nb04.problem import MACHINES, Machine
from course_utils.teaching.exercise import Verdict, exercise
from keepfed.formatting import plural

HIDDEN = 60


def enough(m: Machine) -> int:
    """Return the fewest workers that load as fast as the GPU computes, if nothing else limits."""
    return ceil((m.read_ms + m.cpu_ms) / m.step_ms)


def needed_mb(m: Machine, workers: int) -> float:
    """Return what so many workers hold with the batches they have ready, and the one in use."""
    return workers * (m.worker_mb + m.prefetch_factor * m.batch_mb) + m.batch_mb


def smallest(m: Machine) -> int | None:
    """Return the fewest workers that keep the GPU busy and fit the memory, or None."""
    return None if _forbids(m) else enough(m)


def _forbids(m: Machine) -> str:
    """Say what no number of workers can mend on this machine; nothing: an empty string."""
    for shared, ms, count in ("core", m.cpu_ms, m.cores), ("storage stream", m.read_ms, m.streams):
        if ms / count > m.step_ms:
            return (
                f"{plural(count, shared)} can do {ms:g} ms for a batch every {ms / count:.3g} ms, "
                f"and the GPU takes one every {m.step_ms:g} ms"
            )
    workers, held = enough(m), needed_mb(m, enough(m))
    if held > m.free_mb:
        return f"its {plural(workers, 'worker')} would hold {held:,.0f} of {m.free_mb:,.0f} MB"
    return ""


_MANY = 10**9
_GENERAL = "Begin with W = ceil((read_ms + cpu_ms) / step_ms), then look for what forbids it."
_LIMITS = (
    "Return None unless cpu_ms / cores <= step_ms, read_ms / streams <= step_ms, and the memory "
    "suffices."
)
_MEMORY = "Compare W * (worker_mb + prefetch_factor * batch_mb) with free_mb."


def _up_to(most: int, workers: int | None) -> int | None:
    return workers if workers and workers <= most else None


def _in_memory(m: Machine) -> int | None:
    return smallest(replace(m, cores=_MANY, streams=_MANY))


SLIPS: Slips[Machine, float | None] = {
    "You allow P workers at most, as in the plot: there a batch only waited, or only computed. "
    "Here it does both, and while one worker waits, another one has its core: the 8 of the "
    "cluster node need less than one of 4 cores.": (
        "Compare cpu_ms / cores and read_ms / streams with step_ms, each for itself.",
        lambda m: _up_to(m.cores, enough(m)),
        lambda m: _up_to(m.cores, _in_memory(m)),
        lambda m: _up_to(min(m.cores, m.streams), enough(m)),
        lambda m: _up_to(min(m.cores, m.streams), _in_memory(m)),
    ),
    "You return 0 where no number of workers will do. With 0 workers the loop loads each batch "
    "itself, and the GPU waits meanwhile.": (
        "Return None there: it says that something else has to change.",
        lambda m: smallest(m) or 0,
    ),
    "One worker for each core is a rule that looks at neither the data nor the GPU.": (
        _GENERAL,
        lambda m: m.cores,
    ),
    "You never return None, though on some machines no W feeds the GPU or fits the memory.": (
        _LIMITS,
        enough,
    ),
    "You leave out the memory. Each worker holds worker_mb and its batches in flight.": (
        _MEMORY,
        lambda m: smallest(replace(m, free_mb=_MANY)),
    ),
    "You forget that workers share the cores: however many there are, the machine needs cpu_ms / "
    "cores for a batch.": (_LIMITS, lambda m: smallest(replace(m, cores=_MANY))),
    "You keep a core for the notebook. It computes little while it feeds a GPU, and the machines "
    "of this exercise lend all their cores to workers.": (
        "Compare cpu_ms / cores with step_ms.",
        lambda m: smallest(replace(m, cores=max(1, m.cores - 1))),
    ),
    "You forget that workers share the storage: however many there are, it needs read_ms / "
    "streams for a batch.": (_LIMITS, lambda m: smallest(replace(m, streams=_MANY))),
    "You forget what the workers share: cores for cpu_ms, storage streams for read_ms.": (
        _LIMITS,
        _in_memory,
    ),
    "You allow no more workers than cores. A worker that waits for the storage needs no core: on "
    "the cluster node 8 workers need less than one.": (
        "Compare cpu_ms / cores with step_ms, not W with cores.",
        lambda m: _up_to(m.cores, smallest(m)),
    ),
    "You cut W down to the P of the plot. Then the GPU waits; and a worker that waits for the "
    "storage needs no core.": (_LIMITS, lambda m: min(enough(m), m.cores, m.streams)),
    "You cut W down to the cores. Then the GPU waits; and a worker that waits for the storage "
    "needs no core at all.": (_LIMITS, lambda m: min(enough(m), m.cores)),
    "You count the workers' own memory, but not the batches that lie ready.": (
        _MEMORY,
        lambda m: smallest(replace(m, batch_mb=0)),
    ),
    "You count the same number of batches for each worker, on every machine. It loads "
    "prefetch_factor batches ahead, 2 unless you say otherwise.": (
        _MEMORY,
        lambda m: smallest(replace(m, prefetch_factor=1)),
        lambda m: smallest(replace(m, prefetch_factor=2)),
    ),
    "You round down: so many workers are a little too slow, and the GPU waits.": (
        "Use math.ceil.",
        lambda m: smallest(m) and int((m.read_ms + m.cpu_ms) / m.step_ms),
    ),
    "You round to the nearest number: where it is the lower one the GPU waits.": (
        "Use math.ceil.",
        lambda m: smallest(m) and round((m.read_ms + m.cpu_ms) / m.step_ms),
    ),
    "You leave the reading out. While a worker waits for the storage it can do nothing else.": (
        _GENERAL,
        lambda m: smallest(m) and ceil(m.cpu_ms / m.step_ms),
    ),
    "That is the largest number that fits. More workers than needed gain nothing, and each takes "
    "memory and a start.": (
        _GENERAL,
        lambda m: smallest(m) and int(m.free_mb / (m.worker_mb + 2 * m.batch_mb)),
        lambda m: smallest(m) and int(m.free_mb / (m.worker_mb + m.prefetch_factor * m.batch_mb)),
    ),
}


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
    low = 5, 5, 30, 1, 1, 50, 10, 2, _MANY
    high = 400, 300, 90, 13, 19, 400, 150, 5, _MANY + 1
    machines = [
        Machine(10, 240, 60, 4, 32, 500, 50, 2, 6_000),  # what is shared just suffices
        Machine(400, 10, 50, 4, 8, 400, 50, 2, 30_000),
        Machine(10, 40, 60, 4, 8, 400, 50, 2, 550),  # one worker just fits, or it takes many
        Machine(1_100, 100, 50, 4, 32, 100, 10, 2, 30_000),
        Machine(9_900, 100, 50, 4, 256, 100, 10, 2, 30_000),
    ]
    while len(machines) < count:
        roomy = Machine(*rng.integers(low, high).tolist())
        free = round(needed_mb(roomy, enough(roomy)) * float(rng.uniform(0.6, 1.8)))
        machine = replace(roomy, free_mb=free)
        # who leaves the batch in use to the notebook is as right
        if smallest(machine) == smallest(replace(machine, free_mb=free + roomy.batch_mb)):
            machines.append(machine)
    return machines


def _read(machine: Machine, workers: Any) -> float | None:
    if workers is None:
        return None
    refusal = f"For {_name(machine)} you return {workers!r:.60}, which is no number of workers."
    return read_whole(workers, refusal, "Return a whole number, or None where no number will do.")


def _explain(machine: Machine, answer: float | None, true: float | None) -> tuple[str, str]:
    said = "None" if answer is None else plural(int(answer), "worker")
    if true is None:
        because = f"no W will do: {_forbids(machine)}"
    elif answer is None:
        because = "there is a W that feeds the GPU and fits"
    else:
        because = "that leaves the GPU waiting" if answer < true else "that is more than it takes"
    next_step = _LIMITS if None in (answer, true) else _GENERAL
    return f"For {_name(machine)} you return {said}, but {because}.", next_step


def _name(machine: Machine) -> str:
    names = (f"the {name}" for name, shown in MACHINES.items() if shown == machine)
    return next(names, str(machine))
