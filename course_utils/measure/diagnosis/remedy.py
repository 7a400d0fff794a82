"""Say of a cause what it is, name the one change to make, and let the model predict its gain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from course_utils.measure.diagnosis.measurements import Measurements, ms
from course_utils.measure.diagnosis.verdict import (
    Cause,
    moves_bytes,
    oversubscribed,
    shares_too_few_cores,
    slowest_stage,
)
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import compute_spans
from course_utils.words import duration, percent, plural, size

MOST_WORKERS = 16
STEPS = 60  # of the simulated loop


class Remedy(NamedTuple):
    """What is wrong, and the one change to make."""

    verdict: str  # one sentence
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
    verdict = (
        f"GPU-bound, leave it alone: the step takes {ms(m.step_s)} by itself and "
        f"{ms(m.together_s)} with the loader, so an infinitely fast loader would make training "
        f"{m.headspace:.2f} times as fast."
    )
    return Remedy(verdict, "leave the loader alone; work on the step", 1.0)


def _storage(m: Measurements) -> Remedy:
    where = "a worker" if m.workers else "the main process"
    verdict = (
        f"Storage: of the {ms(m.fetch_s)} that a fetch takes, {where} waits "
        f"{ms(m.waiting_s)} and computes {ms(m.computing_s)}."
    )
    change = "copy the data to a local disk, or pack many samples into one file"
    return _more_workers(m, MOST_WORKERS, verdict) or Remedy(
        verdict, change, gain(m, read_ms=0.0), at_most=True
    )


def _cpu(m: Measurements) -> Remedy:
    computes = f"a fetch computes for {ms(m.computing_s)} of {ms(m.fetch_s)}"
    if shares_too_few_cores(m):
        share = plural(m.worker_cores, "core")
        return Remedy(
            f"CPU: {computes}, and the {m.workers} workers share {share} of {m.cores}.",
            f"let the workers use all {m.cores} cores: take away what pins them",
            gain(m, cores=min(m.workers, m.cores)),
        )
    if oversubscribed(m):
        who = plural(max(m.workers, 1), "worker" if m.workers else "process")
        verdict = (
            f"CPU: {computes}, and {who} with {m.pool_threads} threads each hinder each other: "
            f"with one thread a batch is loaded {m.one_thread_gain:.1f} times as fast."
        )
        change = "thread pools to one: OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1"
        if m.workers:
            change = "thread pools to one: worker_init_fn=course_utils.loading.workers.worker_init"
        return Remedy(verdict, change, gain(m, quicker=m.one_thread_gain))
    verdict, what = f"CPU in the dataset: {computes}.", "what the dataset computes"
    if stage := slowest_stage(m):
        part = percent(m.stages[stage] / sum(m.stages.values()))
        verdict = f"CPU in the stage {stage}: {computes}, {part} of it there."
        what = f"the stage {stage!r}"
    change = f"do {what} once, ahead of training, or on the GPU; or take more cores"
    return _more_workers(m, m.cores, verdict) or Remedy(
        verdict, change, gain(m, transform_ms=0.0), at_most=True
    )


def _moving(m: Measurements) -> Remedy:
    verdict = (
        f"IPC: to move a batch of {size(m.batch_bytes)} from a worker to the main process costs "
        f"{ms(m.sending_s)} of processor time, to make it {ms(m.making_s)}."
    )
    if m.collate_s > m.fetch_s / 2 and m.collate_s > m.sending_s:
        if not moves_bytes(m):
            return _collating(m)
        verdict = (
            f"IPC: {ms(m.collate_s)} of the {ms(m.fetch_s)} of a fetch go into copying the "
            f"{size(m.batch_bytes)} of a batch into shared memory."
        )
    change = "make the batch smaller, such as uint8 instead of float32, converted on the GPU"
    if m.pickle_s > m.sending_s / 4:
        change = "return tensors instead of nested lists and dicts: they are not pickled"
    collate_ms = 0.0 if moves_bytes(m) else min(m.collate_s, m.computing_s) * 1e3
    without = gain(m, collate_ms=collate_ms, host_ms=m.host_s * 1e3)
    return Remedy(verdict, change, without, at_most=True)


def _collating(m: Measurements) -> Remedy:
    verdict = f"Collate: of the {ms(m.fetch_s)} of a fetch, {ms(m.collate_s)} go into collating."
    change = "collate whole arrays at once (torch.stack, padding), without a loop in Python"
    return _more_workers(m, m.cores, verdict) or Remedy(
        verdict, change, gain(m, collate_ms=0.0), at_most=True
    )


def _transfer(m: Measurements) -> Remedy:
    return Remedy(
        f"Transfer: in a step of {ms(m.step_s)}, {ms(m.transfer_s)} are copies to the device "
        "during which it computes nothing.",
        "pin_memory=True, and copy with non_blocking=True, one batch ahead of the step",
        gain(m, pinned=True, overlap=True),
    )


def _main_process(m: Measurements) -> Remedy:
    return Remedy(
        f"Main process: of a step of {ms(m.step_s)}, the device has nothing to do for "
        f"{ms(m.host_s)}, while Python runs or waits.",
        "take the Python work out of the loop, and read the loss (.item()) only every 50 steps",
        gain(m, host_ms=0.0, sync=False),
        at_most=True,
    )


def _start_up(m: Measurements) -> Remedy:
    change = "do once, before training, what the loader does at the start of each epoch"
    return Remedy(
        f"Start-up: each epoch of {m.epoch} batches begins with {duration(m.start_up_s * 1e9)} "
        f"in which nothing is loaded, then takes {ms(m.together_s)} a batch.",
        "persistent_workers=True" if m.workers else change,
        m.turn_s / m.together_s if m.together_s else 1.0,
    )


def _memory(m: Measurements) -> Remedy:
    if m.grown_bytes > m.in_flight_bytes:
        return Remedy(
            f"Memory: what the workers have of their own grew from {size(m.own_bytes)} by "
            f"{size(m.grown_bytes)} in {m.watched} batches.",
            "keep the dataset's lists in arrays: course_utils.loading.workers.PackedStrings",
            1.0,
        )
    return Remedy(
        f"Memory: the queue can hold {m.workers} x {m.prefetch_factor} + 1 batches of "
        f"{size(m.batch_bytes)}, together {size(m.in_flight_bytes)} of the {size(m.free_bytes)} "
        "that are free.",
        "prefetch_factor=1, or fewer workers: fewer batches in flight",
        1.0,
    )


def _uneven(m: Measurements) -> Remedy:
    change = "find out what is special about the slow samples, and load ahead: num_workers=2"
    if m.workers:
        change = "in_order=False, and find out what is special about the slow samples"
    usual = m.fetch_s * (1 - m.slow_time)
    return Remedy(
        f"Uneven: {percent(m.slow_share)} of the fetches take {percent(m.slow_time)} of the "
        f"time (up to {ms(m.slowest_s)}, on average {ms(m.fetch_s)}), and all others wait for "
        "them.",
        change,
        gain(m, quicker=m.fetch_s / max(usual, 1e-9)),
        at_most=True,
    )


def _more_workers(m: Measurements, most: int, verdict: str) -> Remedy | None:
    """Return the change to as many workers as keep up with the step, None if there are enough."""
    wanted = math.ceil(m.making_s / m.step_s) + 1 if m.step_s else most
    enough = 2 ** math.ceil(math.log2(wanted))
    workers = min(max(enough, min(2, most)), most)
    if workers <= m.workers:
        return None
    return Remedy(verdict, f"num_workers={workers}", gain(m, num_workers=workers))


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
