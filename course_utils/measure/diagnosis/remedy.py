"""Name the one change to make, and let the model predict what it gains."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from course_utils.measure.diagnosis.measurements import Measurements
from course_utils.measure.diagnosis.verdict import (
    Cause,
    moves_bytes,
    oversubscribed,
    shares_too_few_cores,
    slowest_stage,
)
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import compute_spans

MOST_WORKERS = 16
STEPS = 60  # of the simulated loop


@dataclass(frozen=True)
class Remedy:
    """One change."""

    change: str
    gain: float  # predicted speed of the loop, over the speed that the same model gives it now
    at_most: bool = False  # the gain is that of removing the cause altogether


def remedy(m: Measurements, cause: Cause) -> Remedy:
    """Return what to change about `cause`."""
    return {
        "GPU-bound": _leave_it,
        "storage": _storage,
        "CPU": _cpu,
        "collate or IPC": _moving,
        "transfer": _transfer,
        "main process": _main_process,
        "start-up": _start_up,
        "memory": _memory,
        "uneven": _uneven,
    }[cause](m)


def _leave_it(m: Measurements) -> Remedy:
    return Remedy("leave the loader alone; work on the step", 1.0)


def _storage(m: Measurements) -> Remedy:
    workers = _enough_workers(m, MOST_WORKERS)
    if workers > m.workers:
        return Remedy(f"num_workers={workers}", gain(m, num_workers=workers))
    return Remedy(
        "copy the data to a local disk, or pack many samples into one file",
        gain(m, read_ms=0.0),
        at_most=True,
    )


def _cpu(m: Measurements) -> Remedy:
    if shares_too_few_cores(m):
        cores = min(m.workers, m.cores)
        change = f"let the workers use all {m.cores} cores: take away what pins them"
        return Remedy(change, gain(m, cores=cores))
    if oversubscribed(m):
        if not m.workers:
            change = "thread pools to one: OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1"
        else:
            change = "thread pools to one: worker_init_fn=course_utils.loading.workers.worker_init"
        return Remedy(change, gain(m, quicker=m.one_thread_gain))
    workers = _enough_workers(m, m.cores)
    if workers > m.workers:
        return Remedy(f"num_workers={workers}", gain(m, num_workers=workers))
    stage = slowest_stage(m)
    what = f"the stage {stage!r}" if stage else "what the dataset computes"
    change = f"do {what} once, ahead of training, or on the GPU; or take more cores"
    return Remedy(change, gain(m, transform_ms=0.0), at_most=True)


def _moving(m: Measurements) -> Remedy:
    collates = m.collate_s > m.fetch_s / 2 and m.collate_s > m.sending_s
    if collates and not moves_bytes(m):
        workers = _enough_workers(m, m.cores)
        if workers > m.workers:
            return Remedy(f"num_workers={workers}", gain(m, num_workers=workers))
        change = "collate whole arrays at once (torch.stack, padding), without a loop in Python"
        return Remedy(change, gain(m, collate_ms=0.0), at_most=True)
    if m.pickle_s > m.sending_s / 4:
        change = "return tensors instead of nested lists and dicts: they are not pickled"
        return Remedy(change, _without_moving(m), at_most=True)
    change = "make the batch smaller, such as uint8 instead of float32, converted on the GPU"
    return Remedy(change, _without_moving(m), at_most=True)


def _without_moving(m: Measurements) -> float:
    collate_ms = 0.0 if moves_bytes(m) else min(m.collate_s, m.computing_s) * 1e3
    return gain(m, collate_ms=collate_ms, host_ms=m.host_s * 1e3)


def _transfer(m: Measurements) -> Remedy:
    change = "pin_memory=True, and copy with non_blocking=True, one batch ahead of the step"
    return Remedy(change, gain(m, pinned=True, overlap=True))


def _main_process(m: Measurements) -> Remedy:
    change = "take the Python work out of the loop, and read the loss (.item()) only every 50 steps"
    return Remedy(change, gain(m, host_ms=0.0, sync=False), at_most=True)


def _start_up(m: Measurements) -> Remedy:
    if m.workers:
        change = "persistent_workers=True"
    else:
        change = "do once, before training, what the loader does at the start of each epoch"
    return Remedy(change, m.turn_s / m.together_s if m.together_s else 1.0)


def _memory(m: Measurements) -> Remedy:
    if m.grown_bytes > m.in_flight_bytes:
        change = "keep the dataset's lists in arrays: course_utils.loading.workers.PackedStrings"
    else:
        change = "prefetch_factor=1, or fewer workers: fewer batches in flight"
    return Remedy(change, 1.0)


def _uneven(m: Measurements) -> Remedy:
    usual = m.fetch_s * (1 - m.slow_time)
    factor = m.fetch_s / max(usual, 1e-9)
    if m.workers:
        change = "in_order=False, and find out what is special about the slow samples"
    else:
        change = "find out what is special about the slow samples, and load ahead: num_workers=2"
    return Remedy(change, gain(m, quicker=factor), at_most=True)


def _enough_workers(m: Measurements, most: int) -> int:
    """Return how many workers keep up with the step, in powers of two; not more than `most`."""
    wanted = math.ceil(m.making_s / m.step_s) + 1 if m.step_s else most
    enough = 1
    while enough < wanted:
        enough *= 2
    return min(max(enough, min(2, most)), most)


def gain(m: Measurements, *, quicker: float = 1.0, **changes: Any) -> float:
    """Return how many times faster the model's loop runs with `changes` to its pipeline.

    `quicker` is by how much fetching itself gets faster.
    """
    now = pipeline(m)
    names = ("read_ms", "transform_ms", "collate_ms")
    faster = {name: getattr(now, name) / quicker for name in names}
    after = replace(now, **{**faster, **changes})
    return max(1.0, turn_ms(now) / turn_ms(after))


def pipeline(m: Measurements) -> Pipeline:
    """Return the model of the loop that was measured."""
    collate_s = min(m.collate_s, m.computing_s)
    sent_s = max(0.0, m.sending_s - m.receiving_s)
    return Pipeline(
        read_ms=m.waiting_s * 1e3,
        transform_ms=(m.computing_s - collate_s) * 1e3,
        collate_ms=(collate_s + sent_s) * 1e3,
        copy_ms=m.transfer_s * 1e3,
        step_ms=(m.step_s if m.compute_s is None else m.compute_s) * 1e3,
        host_ms=(m.host_s + m.receiving_s) * 1e3,
        num_workers=m.workers,
        prefetch_factor=m.prefetch_factor,
        cores=max(1, min(m.worker_cores, m.cores)),
        steps=STEPS,
        jitter=0.0,
    )


def turn_ms(pipeline: Pipeline) -> float:
    """Return the milliseconds between steps in the second half of the simulated loop."""
    steps = compute_spans(simulate(pipeline).spans)
    if not steps:  # a step of no length
        return max(pipeline.load_ms / max(1, pipeline.num_workers), pipeline.host_ms, 1e-6)
    half = steps[len(steps) // 2 :]
    return max((half[-1].end_ns - half[0].end_ns) / (len(half) - 1) / 1e6, 1e-6)
