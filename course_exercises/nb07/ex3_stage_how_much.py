"""Exercise 07.3: how much of a file may lie in /dev/shm beside the workers."""

from collections.abc import Callable
from dataclasses import replace

from course_exercises.judging import Slips, draw, judge_rule, number
from course_exercises.nb07.problem import JOBS, StagingJob
from course_utils.teaching.exercise import Verdict, exercise

HIDDEN = draw(
    StagingJob,
    60,
    seed=7,
    shm_mb=(64, 1_000, 50_000, 200_000),
    memory_mb=range(4_000, 200_000, 1_000),
    program_mb=range(500, 2_500, 500),
    workers=(0, 0, *range(1, 17)),
    worker_mb=range(100, 800, 100),
    prefetch_factor=range(1, 6),
    batch_mb=range(1, 40),
)
Count = Callable[[StagingJob], int]


def in_flight(job: StagingJob) -> int:
    """Return how many batches are on their way; without workers none is."""
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


SLIPS: Slips[StagingJob, float] = {
    "You fill /dev/shm to the brim. The batches of the workers travel through it too: the first "
    "one dies of a bus error.": (
        "Leave room for what is on its way: (workers * prefetch_factor + 1) * batch_mb.",
        lambda job: job.shm_mb,
    ),
    "You look at the size of /dev/shm only. It is a limit and no memory: what lies there counts "
    "as memory of the job, and above memory_mb the kernel kills it.": (
        "Take the smaller of two limits: /dev/shm, and the memory less program, workers and "
        "batches.",
        _in_shm,
    ),
    "You look at the memory only. A file system that is full is full, however much memory is "
    "left.": (
        "Take the smaller of two limits: the memory that is left, and /dev/shm less the batches.",
        _in_memory,
    ),
    "In the memory you have counted the batches, in /dev/shm you have not: they travel through "
    "it.": (
        "Subtract what is on its way from shm_mb as well.",
        lambda job: min(_in_shm(job, lambda _: 0), _in_memory(job)),
    ),
    "In /dev/shm you have counted the batches, in the memory you have not: what lies there is "
    "memory.": (
        "Subtract what is on its way from memory_mb as well.",
        lambda job: min(_in_shm(job), _in_memory(job, lambda _: 0)),
    ),
    "You forget that every worker is a process with a memory of its own.": (
        "Subtract workers * worker_mb from the memory.",
        lambda job: _room(replace(job, worker_mb=0)),
    ),
    "You forget the training program itself.": (
        "Subtract program_mb from the memory.",
        lambda job: _room(replace(job, program_mb=0)),
    ),
    "workers * prefetch_factor batches lie ready, and one more is in use.": (
        "Add that one: (workers * prefetch_factor + 1) * batch_mb.",
        lambda job: _room(job, lambda j: j.workers * j.prefetch_factor),
    ),
    "One more batch is in use, and you count one more for each worker: the loop is one.": (
        "Add one batch for all: (workers * prefetch_factor + 1) * batch_mb.",
        lambda job: _room(job, lambda j: j.workers * (j.prefetch_factor + 1)),
    ),
    "A worker has more than one batch ready: prefetch_factor of them.": (
        "On their way are (workers * prefetch_factor + 1) * batch_mb.",
        lambda job: _room(job, lambda j: j.workers),
        lambda job: _room(job, lambda j: j.workers + 1 if j.workers else 0),
    ),
    "You count a batch in use where there are no workers. The program makes it itself then, in "
    "its own memory: program_mb has it.": (
        "Without workers nothing is on its way.",
        lambda job: _room(job, lambda j: j.workers * j.prefetch_factor + 1),
    ),
}


@exercise("07.3", title="How much may be staged?")
def stage_how_much(stageable_mb: Callable[[StagingJob], float]) -> Verdict:
    """Judge a function from a job to the MB that may lie in /dev/shm."""
    return judge_rule(
        stageable_mb,
        cases=[*JOBS.values(), *HIDDEN],
        truth=room,
        slips=SLIPS,
        answer=number("MB", within=0.5, least=0, advice="Return one number; 0 where nothing fits."),
        praise=f"{len(JOBS) + len(HIDDEN)} jobs: nobody dies of a bus error, nobody is killed, and "
        "no MB is wasted.",
        otherwise=_explain,
    )


def _explain(job: StagingJob, answer: float, mb: float) -> tuple[str, str]:
    if answer < 0 == mb:
        return (
            "Where nothing fits you return less than nothing.",
            "max(0, ...): then nothing may be staged.",
        )
    much = "too much: the job dies" if answer > mb else "less than there is room for"
    return (
        f"For {job} you return {answer:,.0f} MB; that is {much}.",
        "Two limits: /dev/shm less the batches on their way; the memory less program, workers and "
        "the same batches. The smaller one counts.",
    )
