"""Checks of notebook 08. Here: where to augment, and how long a step takes then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any

import numpy as np

from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong


@dataclass(frozen=True)
class Job:
    """A training; times are ms per batch, those of the CPU for one core. Sizes are MB."""

    cores: int  # as many workers load, all the time
    load_ms: float  # L: read, decode, collate
    augment_cpu_ms: float  # what the augmentation adds to L in a worker
    step_ms: float  # C
    augment_gpu_ms: float  # A
    augment_mb: float  # device memory that the augmentation needs
    free_mb: float  # what the training leaves free there


JOBS = {
    "small model": Job(2, 40, 80, 30, 3, 900, 9_000),
    "large model": Job(16, 40, 80, 200, 15, 900, 9_000),
    "full device": Job(2, 40, 80, 30, 3, 900, 400),
}

# Jobs drawn at random hardly ever tell these from what is nearly right.
_TELLING = (
    Job(8, 40, 400, 10, 30, 900, 9_000),  # A is more than C, and than loading
    Job(1, 100, 300, 20, 10, 900, 9_000),  # loading is more than C + A
)

Answer = tuple[str, float]
Decide = Callable[[Job], Answer]
Time = Callable[[Job], float]


def on_cpu(job: Job) -> float:
    """Return the step time with the augmentation in the workers."""
    return max(job.step_ms, (job.load_ms + job.augment_cpu_ms) / job.cores)


def on_gpu(job: Job) -> float:
    """Return the step time with the augmentation on the device."""
    return max(job.step_ms + job.augment_gpu_ms, job.load_ms / job.cores)


def decide(job: Job) -> Answer:
    """Return the better place and the step time there."""
    return _decide(job, on_cpu, on_gpu)


def _decide(job: Job, cpu: Time, gpu: Time, *, look_at_memory: bool = True) -> Answer:
    fits = job.augment_mb <= job.free_mb or not look_at_memory
    if fits and gpu(job) < cpu(job):
        return "GPU", gpu(job)
    return "CPU", cpu(job)


_T_CPU = "In the workers: T = max(C, (L + augment_cpu) / cores)."
_T_GPU = "On the device: T = max(C + A, L / cores)."
_SLIPS: tuple[tuple[Decide, str, str], ...] = (
    (
        lambda job: ("GPU", on_gpu(job)),
        "You always augment on the GPU. Where the GPU is the bottleneck this adds A to each step, "
        "and where its memory is full it cannot be done.",
        "Compute both times, take the smaller one, and look at free_mb.",
    ),
    (
        lambda job: ("CPU", on_cpu(job)),
        "You always augment in the workers. Where the GPU waits for them it has time to spare.",
        "Compute both times and take the smaller one.",
    ),
    (
        lambda job: _decide(job, on_cpu, on_gpu, look_at_memory=False),
        "You do not look at the memory: with more than free_mb the training stops, out of memory.",
        "Only if augment_mb <= free_mb may the answer be GPU.",
    ),
    (
        lambda job: _decide(job, on_cpu, lambda j: max(j.step_ms, j.load_ms / j.cores)),
        "On the device the augmentation is free in your model. It takes A of the same GPU that "
        "computes the step.",
        _T_GPU,
    ),
    (
        lambda job: _decide(
            job, on_cpu, lambda j: max(j.step_ms, j.augment_gpu_ms, j.load_ms / j.cores)
        ),
        "You let the GPU augment and compute at the same time. Both fill it: one comes after the "
        "other.",
        _T_GPU,
    ),
    (
        lambda job: _decide(job, on_cpu, lambda j: j.step_ms + j.augment_gpu_ms),
        "On the device you forget that the workers still read and decode.",
        _T_GPU,
    ),
    (
        lambda job: _decide(
            job, on_cpu, lambda j: j.step_ms + j.augment_gpu_ms + j.load_ms / j.cores
        ),
        "You add the loading to the step. Workers load while the GPU computes.",
        _T_GPU,
    ),
    (
        lambda job: _decide(
            job,
            lambda j: j.step_ms + (j.load_ms + j.augment_cpu_ms) / j.cores,
            lambda j: j.step_ms + j.augment_gpu_ms + j.load_ms / j.cores,
        ),
        "You add loading and computing. With workers both happen at once, and the slower one sets "
        "the pace.",
        f"{_T_CPU} {_T_GPU}",
    ),
    (
        lambda job: _decide(
            job,
            lambda j: max(j.step_ms, j.load_ms + j.augment_cpu_ms),
            lambda j: max(j.step_ms + j.augment_gpu_ms, j.load_ms),
        ),
        "You let one core do it all; the times are for one, and there are `cores` of them.",
        f"{_T_CPU} {_T_GPU}",
    ),
    (
        lambda job: _decide(job, lambda j: max(j.step_ms, j.augment_cpu_ms / j.cores), on_gpu),
        "In the workers you count the augmentation only. They read and decode as well.",
        _T_CPU,
    ),
    (
        lambda job: _other_time(job),
        "The place is right, but the time is that of the other one.",
        "Return the time that belongs to the place.",
    ),
)


def _other_time(job: Job) -> Answer:
    place, _ = decide(job)
    return place, (on_gpu if place == "CPU" else on_cpu)(job)


@exercise("08.3", title="Where to augment?")
def choose(where: Decide) -> Verdict:
    """Judge a function from a job to "CPU" or "GPU" and the milliseconds of a step there."""
    jobs = [*JOBS.values(), *_TELLING, *_hidden_jobs()]
    answers = [_ask(where, job) for job in jobs]
    wanted = [decide(job) for job in jobs]
    if all(map(_equal, answers, wanted)):
        return right(
            f"{len(jobs)} jobs, the smaller time each time. The GPU helps where it waits, and only "
            "there."
        )
    for slip, misconception, next_step in _SLIPS:
        if all(_equal(answer, slip(job)) for answer, job in zip(answers, jobs, strict=True)):
            return wrong(misconception, next_step)
    job, answer = next(
        (j, a) for j, a, w in zip(jobs, answers, wanted, strict=True) if not _equal(a, w)
    )
    return wrong(
        f"For {job} you return {answer[0]} and {answer[1]:.4g} ms. In the workers a step takes "
        f"{on_cpu(job):.4g} ms, on the device {on_gpu(job):.4g} ms if the memory is enough.",
        f"{_T_CPU} {_T_GPU}",
    )


def _hidden_jobs() -> Iterator[Job]:
    rng = np.random.default_rng()
    made = 0
    while made < 60:
        job = Job(
            cores=int(rng.choice([1, 2, 4, 8, 16, 32])),
            load_ms=float(rng.integers(20, 200)),
            augment_cpu_ms=float(rng.integers(20, 400)),
            step_ms=float(rng.integers(10, 200)),
            augment_gpu_ms=float(rng.integers(1, 40)),
            augment_mb=float(rng.integers(1, 20)) * 100,
            free_mb=float(rng.integers(0, 40)) * 100,
        )
        if not isclose(on_cpu(job), on_gpu(job), abs_tol=0.5):  # no ties
            made += 1
            yield job


def _ask(where: Decide, job: Job) -> Answer:
    answer: Any = where(job)
    expect(
        isinstance(answer, tuple | list) and len(answer) == 2,
        f"For {job} you return {answer!r}, not a place and a time.",
        'End it with `return "CPU", step_ms`, for instance.',
    )
    place, ms = answer
    expect(
        place in ("CPU", "GPU"),
        f"For {job} the place is {place!r}.",
        'It is "CPU" for the workers or "GPU" for the device.',
    )
    expect(
        isinstance(ms, int | float | np.number) and not isinstance(ms, bool),
        f"For {job} the time is {ms!r}, which is no number of ms.",
        "Return place and milliseconds, in this order.",
    )
    return str(place), float(ms)


def _equal(one: Answer, other: Answer) -> bool:
    return one[0] == other[0] and isclose(one[1], other[1], rel_tol=1e-3)
