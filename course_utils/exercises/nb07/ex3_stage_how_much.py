"""Exercise 07.3: how much of a file may be stored in /dev/shm alongside the workers."""

from collections.abc import Callable

from course_utils.exercises.judging import Kind, Slips, draw, judge_rule, number
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.exercises.nb07.problem import JOBS, StagingJob
from course_utils.teaching.exercise import Verdict, exercise

HIDDEN = draw(
    StagingJob,
    80,
    seed=7,
    shm_mb=(64, 100.5, 1_000, 50_000, 200_000),
    memory_mb=(1_000, 2_500, 4_000, 8_000, *range(20_000, 300_000, 20_000)),
    program_mb=range(500, 2_500, 250),
    workers=(*[0] * 8, *range(1, 40)),
    worker_mb=range(100, 800, 100),
    prefetch_factor=range(1, 9),
    batch_mb=(0.25, 0.5, *range(1, 40)),
)
Count = Callable[[StagingJob], int]


def in_flight(job: StagingJob) -> int:
    """Return the number of batches in flight, which is 0 without workers."""
    return job.workers * job.prefetch_factor + 1 if job.workers else 0


def room(job: StagingJob) -> float:
    """Return the MB that may be staged."""
    return max(0.0, _room(job))


def _room(job: StagingJob, batches: Count = in_flight) -> float:
    return min(_in_shm(job, batches), _in_memory(job, batches))


def _in_shm(job: StagingJob, batches: Count = in_flight) -> float:
    return job.shm_mb - batches(job) * job.batch_mb


def _in_memory(job: StagingJob, batches: Count = in_flight) -> float:
    programs_mb = job.program_mb + job.workers * job.worker_mb
    return job.memory_mb - programs_mb - batches(job) * job.batch_mb


_LIMITS = (
    "Return the smaller of two limits: shm_mb without the batches in flight, and memory_mb without "
    "the program, the workers and the same batches."
)
SLIPS: Slips[StagingJob, float] = {
    "You fill /dev/shm completely, so there is no space for the batches of the workers. The first "
    "one causes a bus error.": (_LIMITS, lambda job: job.shm_mb),
    "You use only one of two limits. /dev/shm may be full while memory is free. Its files also "
    "count as memory of the job, so the kernel may kill the job while /dev/shm has space.": (
        _LIMITS,
        _in_shm,
        _in_memory,
    ),
    "You subtract the batches in flight from only one limit. They are in /dev/shm, and /dev/shm is "
    "memory.": (
        _LIMITS,
        lambda job: min(_in_shm(job, lambda _: 0), _in_memory(job)),
        lambda job: min(_in_shm(job), _in_memory(job, lambda _: 0)),
    ),
    "The number of batches in flight is wrong. Each worker has prefetch_factor batches ready, and "
    "the loop uses one more. Without workers there are none.": (
        "Subtract (workers * prefetch_factor + 1) * batch_mb if there are workers.",
        lambda job: _room(job, lambda j: j.workers * j.prefetch_factor),
        lambda job: _room(job, lambda j: j.workers * (j.prefetch_factor + 1)),
        lambda job: _room(job, lambda j: j.workers * j.prefetch_factor + 1),
    ),
}


def _same(one: float, other: float) -> bool:
    """Return whether two answers agree, allowing whole MB and 0 for negative values."""
    return any(-1e-6 < limit - one < 1 for limit in (other, max(0, other)))


@exercise("07.3", title="How much may be staged?", seconds=30)
def stage_how_much(stageable_mb: Callable[[StagingJob], float]) -> Verdict:
    """Check a function from a job to the MB that may be stored in /dev/shm."""
    cases = [*JOBS.values(), *HIDDEN]
    with process_unchanged():
        return judge_rule(
            stageable_mb,
            cases=[*cases, *reversed(cases)],  # the order must not matter
            truth=room,
            slips=SLIPS,
            answer=Kind(number("MB", within=0).read, _same),
            praise=f"{len(cases)} jobs without a bus error, a killed job or unused memory.",
        )
