"""Exercise 08.2: where to augment, and how long a step takes then."""

from collections.abc import Callable
from math import isclose
from typing import Any

from course_exercises.judging import Kind, Slips, draw, judge_rule, read_number
from course_exercises.nb08.problem import JOBS, AugmentJob
from course_utils.teaching.exercise import Verdict, exercise, expect

HIDDEN = 400  # few of them tell what is nearly right
NARROW = AugmentJob(4, 40, 58, 20, 4, 900, 9_000)  # 24.5 ms on the CPU, 24 on the GPU

Answer = tuple[str, float]
Time = Callable[[AugmentJob], float]


def on_cpu(job: AugmentJob) -> float:
    """Return the step time with the augmentation in the workers."""
    return max(job.step_ms, (job.load_ms + job.augment_cpu_ms) / job.cores)


def on_gpu(job: AugmentJob) -> float:
    """Return the step time with the augmentation on the device."""
    return max(job.step_ms + job.augment_gpu_ms, job.load_ms / job.cores)


def _decide_by(cpu: Time = on_cpu, gpu: Time = on_gpu) -> Callable[[AugmentJob], Answer]:
    """Return the rule that takes the smaller of these times, where the memory is enough."""

    def decision(job: AugmentJob) -> Answer:
        fits = job.augment_mb <= job.free_mb
        return ("GPU", gpu(job)) if fits and gpu(job) < cpu(job) else ("CPU", cpu(job))

    return decision


decide = _decide_by()

_T_CPU = "In the workers: T = max(C, (L + augment_cpu) / cores)."
_T_GPU = "On the device: T = max(C + A, L / cores)."
SLIPS: Slips[AugmentJob, Answer] = {
    "You always augment on the GPU. Where the GPU is the bottleneck this adds A to each step, and "
    "where its memory is full it cannot be done.": (
        "Compute both times, take the smaller one, and look at free_mb.",
        lambda job: ("GPU", on_gpu(job)),
    ),
    "You always augment in the workers. Where the GPU waits for them it has time to spare.": (
        "Compute both times and take the smaller one.",
        lambda job: ("CPU", on_cpu(job)),
    ),
    "You do not look at the memory: with more than free_mb the training stops, out of memory.": (
        "Only if augment_mb <= free_mb may the answer be GPU.",
        lambda job: min(("GPU", on_gpu(job)), ("CPU", on_cpu(job)), key=lambda answer: answer[1]),
    ),
    "On the device the augmentation is free in your model. It takes A of the same GPU that "
    "computes the step.": (_T_GPU, _decide_by(gpu=lambda j: max(j.step_ms, j.load_ms / j.cores))),
    "You let the GPU augment and compute at the same time. Both fill it: one comes after the "
    "other.": (
        _T_GPU,
        _decide_by(gpu=lambda j: max(j.step_ms, j.augment_gpu_ms, j.load_ms / j.cores)),
    ),
    "On the device you forget that the workers still read and decode.": (
        _T_GPU,
        _decide_by(gpu=lambda j: j.step_ms + j.augment_gpu_ms),
    ),
    "You add the loading to the step. Workers load while the GPU computes.": (
        _T_GPU,
        _decide_by(gpu=lambda j: j.step_ms + j.augment_gpu_ms + j.load_ms / j.cores),
    ),
    "You add loading and computing. With workers both happen at once, and the slower one sets the "
    "pace.": (
        f"{_T_CPU} {_T_GPU}",
        _decide_by(
            lambda j: j.step_ms + (j.load_ms + j.augment_cpu_ms) / j.cores,
            lambda j: j.step_ms + j.augment_gpu_ms + j.load_ms / j.cores,
        ),
    ),
    "You let one core do it all; the times are for one, and there are `cores` of them.": (
        f"{_T_CPU} {_T_GPU}",
        _decide_by(
            lambda j: max(j.step_ms, j.load_ms + j.augment_cpu_ms),
            lambda j: max(j.step_ms + j.augment_gpu_ms, j.load_ms),
        ),
    ),
    "In the workers you count the augmentation only. They read and decode as well.": (
        _T_CPU,
        _decide_by(lambda j: max(j.step_ms, j.augment_cpu_ms / j.cores)),
    ),
    "The place is right, but the time is that of the other one.": (
        "Return the time that belongs to the place.",
        lambda job: (decide(job)[0], (on_gpu if decide(job)[0] == "CPU" else on_cpu)(job)),
    ),
}


@exercise("08.2", title="Where to augment?")
def where_to_augment(where: Callable[[AugmentJob], Answer]) -> Verdict:
    """Judge a function from a job to "CPU" or "GPU" and the milliseconds of a step there."""
    hidden = draw(
        AugmentJob,
        HIDDEN,
        seed=8,
        cores=(1, 2, 4, 8, 16, 32),
        load_ms=range(20, 200),
        augment_cpu_ms=range(20, 400),
        step_ms=range(10, 200),
        augment_gpu_ms=range(1, 40),
        augment_mb=range(100, 2_000, 100),
        free_mb=range(0, 4_000, 100),
    )
    no_ties = (job for job in hidden if abs(on_cpu(job) - on_gpu(job)) > 0.5)
    cases = [*JOBS.values(), NARROW, *no_ties]
    return judge_rule(
        where,
        cases=cases,
        truth=decide,
        slips=SLIPS,
        answer=Kind(
            _read, lambda one, other: one[0] == other[0] and isclose(one[1], other[1], rel_tol=1e-3)
        ),
        praise=f"{len(cases)} jobs, the smaller time each time. The GPU helps where it waits, and "
        "only there.",
        otherwise=lambda job, answer, _: (
            f"For {job} you return {answer[0]} and {answer[1]:.4g} ms. In the workers a step takes "
            f"{on_cpu(job):.4g} ms, on the device {on_gpu(job):.4g} ms if the memory is enough.",
            f"{_T_CPU} {_T_GPU}",
        ),
    )


def _read(job: AugmentJob, answer: Any) -> Answer:
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
    refusal = f"For {job} the time is {ms!r}, which is no number of ms."
    return str(place), read_number(ms, refusal, "Return place and milliseconds, in this order.")
