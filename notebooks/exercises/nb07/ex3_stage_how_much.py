"""Checks of notebook 07. Here: how much of a file may lie in /dev/shm beside the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from course_utils.loading.workers import Budget, ShmBudget
from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong

MB = 10**6


@dataclass(frozen=True)
class Job:
    """A training job on one node. Sizes are MB."""

    shm_mb: float  # what /dev/shm may hold, at most
    memory_mb: float  # what the job may use: its cgroup's limit
    program_mb: float  # the training program itself, without workers
    workers: int
    worker_mb: float  # each
    prefetch_factor: int
    batch_mb: float


JOBS = {
    "container": Job(64, 8_000, 2_000, 2, 300, 2, 8),
    "laptop": Job(8_000, 16_000, 3_000, 4, 500, 2, 30),
    "cluster node": Job(256_000, 120_000, 20_000, 16, 1_500, 4, 100),
}

Answer = Callable[[Job], float]


def room(job: Job) -> float:
    """Return the MB that may be staged."""
    return _budget(job).stageable_bytes / MB


def _travelling(job: Job) -> float:
    return _budget(job).travelling_bytes / MB


def _budget(job: Job) -> ShmBudget:
    programs_mb = job.program_mb + job.workers * job.worker_mb
    return ShmBudget(
        Budget(round(job.batch_mb * MB), job.workers, job.prefetch_factor),
        memory_bytes=round(job.memory_mb * MB),
        shm_bytes=round(job.shm_mb * MB),
        programs_bytes=round(programs_mb * MB),
    )


@dataclass(frozen=True)
class _Slip:
    """What one leaves out: MB of batches in shm and in memory, MB of workers, and both limits."""

    misconception: str
    next_step: str
    shm: Callable[[Job], float] = lambda job: job.shm_mb - _travelling(job)
    memory: Callable[[Job], float] = lambda job: (
        job.memory_mb - job.program_mb - job.workers * job.worker_mb - _travelling(job)
    )

    def answer(self, job: Job) -> float:
        return min(self.shm(job), self.memory(job))


def _with_batches(batches: Callable[[Job], float]) -> dict[str, Callable[[Job], float]]:
    """Return both limits with another idea of how many batches there are."""
    return {
        "shm": lambda job: job.shm_mb - batches(job) * job.batch_mb,
        "memory": lambda job: (
            job.memory_mb
            - job.program_mb
            - job.workers * job.worker_mb
            - batches(job) * job.batch_mb
        ),
    }


def _no_limit(_: Job) -> float:
    return float("inf")


_SLIPS = (
    _Slip(
        "You fill /dev/shm to the brim. The batches of the workers travel through it too: the "
        "first one dies of a bus error.",
        "Leave room for what is on its way: (workers * prefetch_factor + 1) * batch_mb.",
        shm=lambda job: job.shm_mb,
        memory=_no_limit,
    ),
    _Slip(
        "You look at the size of /dev/shm only. It is a limit and no memory: what lies there "
        "counts as memory of the job, and above memory_mb the kernel kills it.",
        "Take the smaller of two limits: /dev/shm, and the memory less program, workers and "
        "batches.",
        memory=_no_limit,
    ),
    _Slip(
        "You look at the memory only. A file system that is full is full, however much memory "
        "is left.",
        "Take the smaller of two limits: the memory that is left, and /dev/shm less the batches.",
        shm=_no_limit,
    ),
    _Slip(
        "In the memory you have counted the batches, in /dev/shm you have not: they travel "
        "through it.",
        "Subtract what is on its way from shm_mb as well.",
        shm=lambda job: job.shm_mb,
    ),
    _Slip(
        "In /dev/shm you have counted the batches, in the memory you have not: what lies there "
        "is memory.",
        "Subtract what is on its way from memory_mb as well.",
        memory=lambda job: job.memory_mb - job.program_mb - job.workers * job.worker_mb,
    ),
    _Slip(
        "You forget that every worker is a process with a memory of its own.",
        "Subtract workers * worker_mb from the memory.",
        memory=lambda job: job.memory_mb - job.program_mb - _travelling(job),
    ),
    _Slip(
        "You forget the training program itself.",
        "Subtract program_mb from the memory.",
        memory=lambda job: job.memory_mb - job.workers * job.worker_mb - _travelling(job),
    ),
    _Slip(
        "workers * prefetch_factor batches lie ready, and one more is in use.",
        "Add that one: (workers * prefetch_factor + 1) * batch_mb.",
        **_with_batches(lambda job: job.workers * job.prefetch_factor),
    ),
    _Slip(
        "A worker has more than one batch ready: prefetch_factor of them.",
        "On their way are (workers * prefetch_factor + 1) * batch_mb.",
        **_with_batches(lambda job: job.workers),
    ),
    _Slip(
        "A worker has more than one batch ready: prefetch_factor of them.",
        "On their way are (workers * prefetch_factor + 1) * batch_mb.",
        **_with_batches(lambda job: job.workers + 1 if job.workers else 0),
    ),
    _Slip(
        "You count a batch in use where there are no workers. The program makes it itself then, "
        "in its own memory: program_mb has it.",
        "Without workers nothing is on its way.",
        **_with_batches(lambda job: job.workers * job.prefetch_factor + 1),
    ),
)


@exercise("07.3", title="How much may be staged?")
def stage_how_much(stageable_mb: Answer) -> Verdict:
    """Judge a function from a job to the MB that may lie in /dev/shm."""
    jobs = [*JOBS.values(), *_hidden_jobs()]
    answers = [_ask(stageable_mb, job) for job in jobs]
    wanted = [room(job) for job in jobs]
    pairs = [*zip(jobs, answers, wanted, strict=True)]
    if all(_equal(*pair[1:]) for pair in pairs):
        return right(
            f"{len(jobs)} jobs: nobody dies of a bus error, nobody is killed, and no MB is wasted."
        )
    for slip in _SLIPS:
        with_slip = [slip.answer(job) for job in jobs]
        clipped = [max(0.0, mb) for mb in with_slip]
        if _all_equal(answers, with_slip) or _all_equal(answers, clipped):
            return wrong(slip.misconception, slip.next_step)
    expect(
        not all(_equal(answer, mb) or answer < 0 == mb for _, answer, mb in pairs),
        "Where nothing fits you return less than nothing.",
        "max(0, ...): then nothing may be staged.",
    )
    job, answer, mb = next(pair for pair in pairs if not _equal(*pair[1:]))
    much = "too much: the job dies" if answer > mb else "less than there is room for"
    return wrong(
        f"For {job} you return {answer:,.0f} MB; that is {much}.",
        "Two limits: /dev/shm less the batches on their way; the memory less program, workers and "
        "the same batches. The smaller one counts.",
    )


def _hidden_jobs() -> Iterator[Job]:
    rng = np.random.default_rng()
    for number in range(60):
        workers = 0 if number % 10 == 0 else int(rng.integers(1, 17))
        memory = float(rng.integers(4, 500)) * 1_000
        yield Job(
            shm_mb=float(rng.choice([64, 1_000, memory // 2, memory])),
            memory_mb=memory,
            program_mb=float(rng.integers(1, 5)) * 500,
            workers=workers,
            worker_mb=float(rng.integers(1, 8)) * 100,
            prefetch_factor=int(rng.integers(2, 6)),
            batch_mb=float(rng.integers(1, 40)),
        )


def _ask(stageable_mb: Answer, job: Job) -> float:
    answer = stageable_mb(job)
    expect(
        isinstance(answer, int | float | np.number) and not isinstance(answer, bool),
        f"For {job} you return {answer!r}, which is no number of MB.",
        "Return one number; 0 where nothing fits.",
    )
    return float(answer)


def _all_equal(some: list[float], others: list[float]) -> bool:
    return all(map(_equal, some, others))


def _equal(one: float, other: float) -> bool:
    return abs(one - other) < 0.5
