"""Exercise 08.2: where to augment, and how long a step then takes."""

from collections.abc import Callable
from math import isclose
from typing import Any

from course_utils.exercises.judging import Kind, Slips, draw, judge_rule, read_number
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.exercises.nb08.problem import JOBS, AugmentJob
from course_utils.teaching.exercise import Verdict, exercise, expect

HIDDEN = 400  # jobs, so that a nearly right rule differs in some of them
NARROW = AugmentJob(4, 40, 58, 20, 4, 900, 9_000)  # 24.5 ms on the CPU, 24 on the GPU
LARGE = AugmentJob(128, 4_000, 2_000, 20, 5, 900, 9_000)

Answer = tuple[str, float]
Time = Callable[[AugmentJob], float]


def on_cpu(job: AugmentJob) -> float:
    """Return the step time if the workers augment."""
    return max(job.step_ms, (job.load_ms + job.augment_cpu_ms) / job.cores)


def on_gpu(job: AugmentJob) -> float:
    """Return the step time if the device augments."""
    return max(job.step_ms + job.augment_gpu_ms, job.load_ms / job.cores)


def _decide_by(cpu: Time = on_cpu, gpu: Time = on_gpu) -> Callable[[AugmentJob], Answer]:
    """Return the rule that chooses the smaller of these times if the memory is enough."""

    def decision(job: AugmentJob) -> Answer:
        fits = job.augment_mb <= job.free_mb
        return ("GPU", gpu(job)) if fits and gpu(job) < cpu(job) else ("CPU", cpu(job))

    return decision


decide = _decide_by()

_TIMES = (
    "In the workers, T = max(C, (L + augmentation) / cores). On the device, T = max(C + A, "
    "L / cores)."
)
SLIPS: Slips[AugmentJob, Answer] = {
    "You ignore the memory. If augment_mb is larger than free_mb, the training runs out of "
    "memory.": (
        "Return GPU only if augment_mb <= free_mb.",
        lambda job: min(("GPU", on_gpu(job)), ("CPU", on_cpu(job)), key=lambda answer: answer[1]),
        lambda job: ("GPU", on_gpu(job)),
    ),
    "In your model, the GPU augments for free or while it computes the step. The GPU does both "
    "one after the other.": (
        _TIMES,
        _decide_by(gpu=lambda j: max(j.step_ms, j.load_ms / j.cores)),
        _decide_by(gpu=lambda j: max(j.step_ms, j.augment_gpu_ms, j.load_ms / j.cores)),
    ),
}


@exercise("08.2", title="Where to augment?", seconds=30)
def where_to_augment(where: Callable[[AugmentJob], Answer]) -> Verdict:
    """Check a function from a job to "CPU" or "GPU" and the milliseconds of a step there."""
    hidden = draw(
        AugmentJob,
        HIDDEN,
        seed=8,
        cores=(1, 2, 3, 4, 6, 8, 16, 48, 128),
        load_ms=(0.5, *range(20, 200)),
        augment_cpu_ms=(1.5, *range(20, 400)),
        step_ms=(2.25, *range(10, 200)),
        augment_gpu_ms=(0, 0.125, *range(1, 40)),
        augment_mb=range(100, 2_000, 100),
        free_mb=range(0, 4_000, 100),
    )
    # if both times are equal, both places are right
    cases = [*JOBS.values(), NARROW, LARGE, *(job for job in hidden if on_cpu(job) != on_gpu(job))]
    with process_unchanged():
        return judge_rule(
            where,
            cases=[*cases, *reversed(cases)],  # the order must not matter
            truth=decide,
            slips=SLIPS,
            answer=Kind(_read, _same),
            praise=f"{len(cases)} jobs, each with the smaller time. The GPU helps only where "
            "it waits.",
        )


def _same(one: Answer, other: Answer) -> bool:
    return one[0] == other[0] and isclose(one[1], other[1], rel_tol=1e-3)


def _read(job: AugmentJob, answer: Any) -> Answer:
    right_kind = isinstance(answer, tuple | list) and len(answer) == 2
    expect(
        right_kind and answer[0] in ("CPU", "GPU"),
        f'For {job}, you return {answer!r}. Return "CPU" for the workers or "GPU" for the device, '
        "and a time.",
        'End the function with `return "CPU", step_ms`, for example.',
    )
    refusal = f"For {job}, the time is {answer[1]!r}, which is not a number of ms."
    return str(answer[0]), read_number(answer[1], refusal, "Return the place, then milliseconds.")
