"""Answers to exercise 08.3 of notebook 08, wrong in typical ways."""

from notebooks.exercises.nb08.ex3_where_to_augment import decide, on_cpu, on_gpu
from notebooks.exercises.nb08.problem import Job


def always_gpu(job: Job) -> tuple[str, float]:
    return "GPU", on_gpu(job)


def always_cpu(job: Job) -> tuple[str, float]:
    return "CPU", on_cpu(job)


def _best(job: Job, cpu: float, gpu: float) -> tuple[str, float]:
    fits = job.augment_mb <= job.free_mb
    return ("GPU", gpu) if fits and gpu < cpu else ("CPU", cpu)


def forgets_memory(job: Job) -> tuple[str, float]:
    cpu, gpu = on_cpu(job), on_gpu(job)
    return ("GPU", gpu) if gpu < cpu else ("CPU", cpu)


def free_on_the_gpu(job: Job) -> tuple[str, float]:
    return _best(job, on_cpu(job), max(job.step_ms, job.load_ms / job.cores))


def at_the_same_time(job: Job) -> tuple[str, float]:
    both = max(job.step_ms, job.augment_gpu_ms, job.load_ms / job.cores)
    return _best(job, on_cpu(job), both)


def no_decoding(job: Job) -> tuple[str, float]:
    return _best(job, on_cpu(job), job.step_ms + job.augment_gpu_ms)


def adds_all(job: Job) -> tuple[str, float]:
    load = job.load_ms / job.cores
    cpu = job.step_ms + load + job.augment_cpu_ms / job.cores
    return _best(job, cpu, job.step_ms + job.augment_gpu_ms + load)


def one_core(job: Job) -> tuple[str, float]:
    cpu = max(job.step_ms, job.load_ms + job.augment_cpu_ms)
    return _best(job, cpu, max(job.step_ms + job.augment_gpu_ms, job.load_ms))


def augments_only(job: Job) -> tuple[str, float]:
    return _best(job, max(job.step_ms, job.augment_cpu_ms / job.cores), on_gpu(job))


def the_other_time(job: Job) -> tuple[str, float]:
    place, _ = decide(job)
    return place, on_gpu(job) if place == "CPU" else on_cpu(job)


def halves(job: Job) -> tuple[str, float]:
    place, ms = decide(job)
    return place, ms / 2


def only_the_time(job: Job) -> float:
    return decide(job)[1]


def another_name(job: Job) -> tuple[str, float]:
    return "cuda", decide(job)[1]


def time_as_text(job: Job) -> tuple[str, str]:
    return decide(job)[0], f"{decide(job)[1]} ms"
