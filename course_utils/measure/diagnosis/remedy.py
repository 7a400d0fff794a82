"""Say of a cause what it is, name the one change to make, and predict its gain.

Of a change that was tried the gain follows from the trial and the step; of a change of code the
model says what it would be if the cause were gone altogether.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from course_utils.measure.diagnosis.changes import Change, and_lasting, with_arguments
from course_utils.measure.diagnosis.estimates import Measurements, ms
from course_utils.measure.diagnosis.trials import (
    NOTICED,
    WHOLE,
    Trial,
    candidates,
    pools_to_one,
    unpinned,
)
from course_utils.measure.diagnosis.verdict import (
    Cause,
    delayed_by_others,
    losses,
    moves_bytes,
    oversubscribed,
    shares_too_few_cores,
    slowest_stage,
)
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import compute_spans
from course_utils.words import duration, factor, percent, plural, size

SMALL_S = 200e-6  # of a sample: most of it is Python that is run once a sample
TINY_S = 4e-6  # of a sample: to list those of a batch takes as long, by one access too
STEPS = 60  # of the simulated loop
# what moving a batch costs a worker, and about the same the main process: one core of November 2026
MOVING_MS, SENDING_MS_PER_MB, RECEIVING_MS_PER_MB = 0.25, 0.9, 0.2
WRITING_MS_PER_MB = 0.2  # of a batch, which whatever makes it has to write: the same core
QUICK_S = 5e-3  # of a batch: workers may cost more, by taking cores from a step with threads
SEVERAL = 1.3  # cores of a step that computes in more than one thread
STARTING_S = 0.1  # of a worker that is forked, and ends: the same machine
WORTH = 1.15  # times faster has a change to be that is worth its name
MUCH_MORE = 4.0  # times the gain of what needs none has a change of code to promise
QUARTER = 0.25  # of the bytes of float32 are those of uint8
ONE_ACCESS = "give the dataset __getitems__(indices), which reads all samples by one access"
AS_IT_IS = "leave the loader as it is: to read each batch by one access was tried, and is no faster"
AS_GOOD = 1.1  # times the shortest turn: the simpler change, which stands first, is taken


class Remedy(NamedTuple):
    """What is wrong, and the one change to make."""

    verdict: str  # one sentence
    change: str
    gain: float  # predicted speed of the loop, over its speed now
    at_most: bool = False  # the gain is that of removing the cause altogether
    how: Change | None = None  # where no code of dataset or step has to be changed


def remedy(m: Measurements, cause: Cause, trials: Sequence[Trial] | None = None) -> Remedy:
    """Return what to change about `cause`: the best of what was tried, if it gains enough.

    Of the change that removes the cause altogether a trial knows more than the model does; and what
    whole batches by one access do not gain, samples by one access do not gain either.
    Where nothing was tried (`trials` is None), more workers are advised if there are cores for them
    and they gain enough although their batches have to be moved; none, if that costs more than to
    make the batches here.
    """
    advised = _advised(m, cause)
    if trials is None:
        return _untried(m, cause, advised)
    if not trials:
        return advised
    shortest = min(trial.turn_s for trial in trials)
    best = next(trial for trial in trials if trial.turn_s <= AS_GOOD * shortest)
    now_s = m.turn_s
    if oversubscribed(m):  # in fits: ten times as slow in one run as in the next
        now_s = min(now_s, m.paces.loader_s + m.start_up_share_s)
    gains, it_is_advised = now_s / best.turn_s, best.change.words.startswith(advised.change)
    was_tried = any(trial.change.kind == "whole batches" for trial in trials)
    was_tried &= advised.change.startswith((ONE_ACCESS, WHOLE))
    enough = WORTH if was_tried else max(WORTH, advised.gain / MUCH_MORE)
    if gains < enough and not it_is_advised:
        return Remedy(advised.verdict, AS_IT_IS, 1.0) if was_tried else advised
    how = best.change if best.applicable else None
    return Remedy(advised.verdict, best.change.words, max(1.0, gains), how=how)


def _untried(m: Measurements, cause: Cause, advised: Remedy) -> Remedy:
    if m.setting.kind == "no DataLoader" and cause == "storage":
        return _storage_or_others(m, advised)
    alone_s = m.making_s + m.paces.step_s  # where the main process makes its batches, none is moved
    if m.setting.workers and cause == "collate or IPC" and m.turn_s > WORTH * alone_s:
        none = with_arguments(num_workers=0)
        return Remedy(advised.verdict, none.words, m.turn_s / alone_s, how=none)
    return (
        advised
        if not m.setting.workers and m.making_s < QUICK_S
        else _more_workers(m, cause, advised)
    )


def _storage_or_others(m: Measurements, advised: Remedy) -> Remedy:
    """Return what to say of a wait in a loader whose threads and processes nobody looked at."""
    verdict = (
        f"Storage, or threads or processes of the loader's own: of the {ms(m.making_s)} that "
        f"next() takes, the main process waits {ms(m.waiting_s)} for them and computes "
        f"{ms(m.fetching.computing_s)}."
    )
    which = f"`diagnose(loader, step)` tells which; if it is storage, {advised.change}"
    return advised._replace(verdict=verdict, change=which)


def _more_workers(m: Measurements, cause: Cause, advised: Remedy) -> Remedy:
    """Return the advice to take more workers if they have cores and gain enough, else `advised`."""
    more = (
        c for c in candidates(m, cause) if c.arguments.get("num_workers", 0) > m.setting.workers
    )
    if (change := next(more, None)) is None:
        return advised
    workers = change.arguments["num_workers"]
    if m.fetching.computing_s > m.waiting_s and (left := _cores_left(m)) < workers:
        if left <= m.setting.workers:
            return advised
        workers, change = left, with_arguments(num_workers=left)
    moving = {}
    if not m.setting.workers:  # what moving a batch will cost is not measured
        now, mb = pipeline(m), m.moving.batch_bytes / 1e6
        moving["collate_ms"] = now.collate_ms + MOVING_MS + SENDING_MS_PER_MB * mb
        moving["host_ms"] = now.host_ms + MOVING_MS + RECEIVING_MS_PER_MB * mb
    gains = gain(m, num_workers=workers, **moving)
    if gains < max(WORTH, advised.gain / MUCH_MORE):
        return advised
    started_s = workers * (
        m.paces.start_up_s / m.setting.workers if m.setting.workers else STARTING_S
    )
    if m.paces.epoch and started_s > NOTICED * m.turn_s * m.paces.epoch:
        change = and_lasting(change)
    return Remedy(advised.verdict, change.words, gains, at_most=True, how=change)


def _cores_left(m: Measurements) -> int:
    """Return the cores that a step of several threads leaves; each of them waits for the others."""
    taken = m.paces.step_cpu_s / m.paces.step_s if m.paces.step_s else 0.0
    return round(m.setting.cores - taken) if taken > SEVERAL else m.setting.cores


def _advised(m: Measurements, cause: Cause) -> Remedy:
    """Return the change that removes `cause` altogether."""
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
    who = "GPU-bound" if m.step.has_device else "Bound by the step"
    lost = losses(m)
    most = 1 + (lost["loader"] + lost["start-up"]) / m.paces.step_s if m.paces.step_s else 1.0
    verdict = (
        f"{who}, leave the loader alone: the step takes {ms(m.paces.step_s)} by itself, and an "
        f"infinitely fast loader would make training {factor(most)} times as fast."
    )
    if delayed_by_others(m):
        verdict = (
            f"{who}, as far as can be told: the step takes {ms(m.paces.step_s)} by itself, and "
            f"{ms(m.turn_s)} together with a loader that is quick enough, since other programs or "
            "its own workers had the cores."
        )
    return Remedy(verdict, "leave the loader alone; work on the step", 1.0)


def _storage(m: Measurements) -> Remedy:
    where = "a worker" if m.setting.workers else "the main process"
    has_a_core = " with a core to itself" if m.fetching.delay_s > m.fetching.fetch_s / 10 else ""
    verdict = (
        f"Storage: of the {ms(m.making_s)} that a fetch takes{has_a_core}, {where} waits "
        f"{ms(m.waiting_s)} and computes {ms(m.fetching.computing_s)}."
    )
    change = "copy the data to a local disk, or pack many samples into one file"
    return Remedy(verdict, change, _at_most(m, read_ms=0.0), at_most=True)


def _cpu(m: Measurements) -> Remedy:
    computes = f"a fetch computes for {ms(m.fetching.computing_s)} of {ms(m.fetching.fetch_s)}"
    if shares_too_few_cores(m):
        share = plural(m.setting.worker_cores, "core")
        return Remedy(
            f"CPU: {computes}, and the {m.setting.workers} workers share {share} of {m.setting.cores}.",
            unpinned(m),
            gain(m, cores=min(m.setting.workers, m.setting.cores)),
        )
    if oversubscribed(m):
        who = plural(max(m.setting.workers, 1), "worker" if m.setting.workers else "process")
        verdict = (
            f"CPU: {computes}, and {who} with {m.fetching.pool_threads} threads each hinder each other: "
            f"with one thread a batch is loaded {m.fetching.one_thread_gain:.1f} times as fast."
        )
        return Remedy(verdict, pools_to_one(m), gain(m, quicker=m.fetching.one_thread_gain))
    verdict, what = f"CPU in the dataset: {computes}.", "what the dataset computes"
    if stage := slowest_stage(m):
        part = percent(
            m.fetching.stages[stage] / max(m.fetching.fetch_s, sum(m.fetching.stages.values()))
        )
        verdict = f"CPU in the stage {stage}, which is {part} of a fetch: {computes}."
        what = f"the stage {stage!r}"
    change, left_s = f"do {what} once, ahead of training, or on the GPU; or take more cores", 0.0
    by_number = m.setting.batch_size and m.setting.kind != "stream"
    if by_number and m.making_s < SMALL_S * m.setting.batch_size and not m.setting.has_getitems:
        change, left_s = ONE_ACCESS, TINY_S * m.setting.batch_size
        if m.setting.kind == "batches of samples" and left_s > m.making_s / 2:
            change, left_s = f"{WHOLE}; its __getitem__ is given the indices of a batch", 0.0
    left_ms = 1e3 * left_s + WRITING_MS_PER_MB * m.moving.batch_bytes / 1e6
    without = _at_most(m, transform_ms=min(left_ms, pipeline(m).transform_ms))
    return Remedy(verdict, change, without, at_most=True)


def _moving(m: Measurements) -> Remedy:
    verdict = (
        f"IPC: to move a batch of {size(m.moving.batch_bytes)} from a worker to the main process costs "
        f"{ms(m.moving.sending_s)} of processor time, to make it {ms(m.making_s)}."
    )
    if m.fetching.collate_s > m.fetching.fetch_s / 2 and m.fetching.collate_s > m.moving.sending_s:
        if not moves_bytes(m):
            return _collating(m)
        verdict = (
            f"IPC: {ms(m.fetching.collate_s)} of the {ms(m.fetching.fetch_s)} of a fetch go into copying the "
            f"{size(m.moving.batch_bytes)} of a batch into shared memory."
        )
    if m.moving.pickle_s > m.moving.sending_s / 4:
        change = "return tensors instead of nested lists and dicts: they are not pickled"
        left = 0.0
    else:
        change = "make the batch smaller, such as uint8 instead of float32, converted on the GPU"
        left = QUARTER
    collating_s = min(m.fetching.collate_s, m.fetching.computing_s) * (
        left if moves_bytes(m) else 1.0
    )
    sent_s = left * max(0.0, m.moving.sending_s - m.moving.receiving_s)
    without = _at_most(
        m,
        collate_ms=1e3 * (collating_s + sent_s),
        host_ms=1e3 * (m.step.host_s + left * m.moving.receiving_s),
    )
    return Remedy(verdict, change, without, at_most=True)


def _collating(m: Measurements) -> Remedy:
    verdict = f"Collate: of the {ms(m.fetching.fetch_s)} of a fetch, {ms(m.fetching.collate_s)} go into collating."
    change = "collate whole arrays at once (torch.stack, padding), without a loop in Python"
    return Remedy(verdict, change, _at_most(m, collate_ms=0.0), at_most=True)


def _transfer(m: Measurements) -> Remedy:
    return Remedy(
        f"Transfer: in a step of {ms(m.paces.step_s)}, {ms(m.step.transfer_s)} are copies to the device "
        "during which it computes nothing.",
        "pin_memory=True, and copy with non_blocking=True, one batch ahead of the step",
        gain(m, pinned=True, overlap=True),
    )


def _main_process(m: Measurements) -> Remedy:
    return Remedy(
        f"Main process: of a step of {ms(m.paces.step_s)}, the device has nothing to do for "
        f"{ms(m.step.host_s)}, while Python runs or waits.",
        "take the Python work out of the loop, and read the loss (.item()) only every 50 steps",
        gain(m, host_ms=0.0, sync=False),
        at_most=True,
    )


def _start_up(m: Measurements) -> Remedy:
    change = "do once, before training, what the loader does at the start of each epoch"
    lasting = with_arguments(persistent_workers=True)
    return Remedy(
        f"Start-up: in each epoch of {m.paces.epoch} batches nothing is loaded for "
        f"{duration(m.paces.start_up_s * 1e9)}; apart from that a batch takes {ms(m.paces.together_s)}.",
        lasting.words if m.setting.workers else change,
        m.turn_s / m.paces.together_s if m.paces.together_s else 1.0,
        how=lasting if m.setting.workers else None,
    )


def _memory(m: Measurements) -> Remedy:
    if m.memory.grown_bytes > m.in_flight_bytes:
        return Remedy(
            f"Memory: what the workers have of their own grew from {size(m.memory.own_bytes)} by "
            f"{size(m.memory.grown_bytes)} in {m.memory.watched} batches.",
            "keep the dataset's lists in arrays: course_utils.loading.workers.PackedStrings",
            1.0,
        )
    return Remedy(
        f"Memory: the queue can hold {m.setting.workers} x {m.setting.prefetch_factor} + 1 batches of "
        f"{size(m.moving.batch_bytes)}, together {size(m.in_flight_bytes)} of the {size(m.setting.free_bytes)} "
        "that are free.",
        "prefetch_factor=1, or fewer workers: fewer batches in flight",
        1.0,
    )


def _uneven(m: Measurements) -> Remedy:
    usual = m.fetching.fetch_s * (1 - m.fetching.slow_time)
    even = _changed(m, m.fetching.fetch_s / max(usual, 1e-9))
    # of waiting for slow samples the model knows nothing, so the loop now is the measured one
    gains = m.turn_s / (turn_ms(even) / 1e3 + m.start_up_share_s)
    return Remedy(
        f"Uneven: {percent(m.fetching.slow_share)} of the fetches take {percent(m.fetching.slow_time)} of the "
        f"time (up to {ms(m.fetching.slowest_s)}, on average {ms(m.fetching.fetch_s)}), and all others wait for "
        "them.",
        "find out what is special about the slow samples, and make them smaller ahead of training",
        max(1.0, min(m.headspace, gains)),
        at_most=True,
    )


def _at_most(m: Measurements, **changes: Any) -> float:
    """Return the gain of a change to the loader, which is no more than that of an ideal one."""
    return min(m.headspace, gain(m, **changes))


def gain(m: Measurements, *, quicker: float = 1.0, **changes: Any) -> float:
    """Return how many times faster the model's loop runs with `changes` to its pipeline.

    `quicker` is by how much fetching itself gets faster. The start-up of an epoch stays as it is.
    """
    start_ms = 1e3 * m.start_up_share_s
    now, then = turn_ms(pipeline(m)), turn_ms(_changed(m, quicker, **changes))
    return max(1.0, (now + start_ms) / (then + start_ms))


def _changed(m: Measurements, quicker: float, **changes: Any) -> Pipeline:
    now = pipeline(m)
    names = ("read_ms", "transform_ms", "collate_ms")
    faster = {name: getattr(now, name) / quicker for name in names}
    return replace(now, **{**faster, **changes})


def pipeline(m: Measurements) -> Pipeline:
    """Return the model of the loop that was measured."""
    collate_s = min(m.fetching.collate_s, m.fetching.computing_s)
    sent_s = max(0.0, m.moving.sending_s - m.moving.receiving_s)
    return Pipeline(
        read_ms=m.waiting_s * 1e3,
        transform_ms=(m.fetching.computing_s - collate_s) * 1e3,
        collate_ms=(collate_s + sent_s) * 1e3,
        copy_ms=m.step.transfer_s * 1e3,
        step_ms=(m.paces.step_s if m.step.compute_s is None else m.step.compute_s) * 1e3,
        host_ms=(m.step.host_s + m.moving.receiving_s) * 1e3,
        num_workers=m.setting.workers,
        prefetch_factor=m.setting.prefetch_factor,
        cores=max(1, min(m.setting.worker_cores, m.setting.cores)),
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
