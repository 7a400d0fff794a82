"""Estimate the measurements of a loop from three runs: loader, step, and both together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from torch.utils.data import IterableDataset

from keepfed.limits import memory_free, usable_cores
from keepfed.measure.advice import (
    Fetching,
    Kind,
    Measurements,
    Moving,
    Paces,
    Setting,
    StepParts,
    active_workers,
    fetching_of,
    filling_s,
    mean_s,
    memory_of,
    sent_s,
    start_up_s,
    steady,
)
from keepfed.measure.advice.thresholds import POOL_CPU_SHARE, READY_NS
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.diagnosis.three_runs import ThreeRuns
from keepfed.measure.hook import data_loader_in, reads_whole_batches
from keepfed.measure.spans import Span, compute_spans, union
from keepfed.measure.throughput import length


def estimate(loader: Any, runs: ThreeRuns) -> Measurements:
    """Return the measurements of a loop."""
    alone, step, together = runs[:3]
    memories = [memory_of(run.fetches) for run in (alone, together)]
    return Measurements(
        paces=_paces(loader, runs),
        step=_parts_of(step, runs.replay.copy_s),
        setting=_setting(loader, runs),
        fetching=_fetching(alone, step),
        moving=_moving(runs),
        memory=max(memories, key=lambda memory: memory.grown_bytes),
    )


def may_be_oversubscribed(run: Run) -> bool:
    """Return whether other threads compute besides the fetching thread."""
    fetches = steady(run.fetches)
    others_s = mean_s([fetch.process_cpu_ns - fetch.cpu_ns for fetch in fetches])
    pools = any(fetch.pool_threads > 1 for fetch in fetches)
    return pools and others_s > POOL_CPU_SHARE * mean_s([fetch.cpu_ns for fetch in fetches])


def one_thread_gain(alone: Run, trial: Run) -> float | None:
    """Return the gain in time or in CPU time with one thread, whichever is smaller.

    Threads that help save time, but cost as much CPU time as one thread.
    """
    runs = alone, trial
    before, after = (mean_s([f.process_cpu_ns for f in steady(run.fetches)]) for run in runs)
    return min(alone.batch_s / trial.batch_s, before / after) if after and trial.batch_s else None


def has_persistent_workers(loader: Any) -> bool:
    """Return whether the workers of a loader are persistent."""
    return bool(getattr(data_loader_in(loader), "persistent_workers", False))


def start_up_of(runs: Sequence[Run], persistent: bool) -> float | None:
    """Return the seconds per epoch in which nothing is loaded, or None if they are unknown.

    Workers that are not persistent start and end in each epoch. For others, a later epoch shows the
    remaining delay.
    """
    firsts_s = [run.first_s(since_epoch=int(persistent)) for run in runs]
    known_s = [first_s for first_s in firsts_s if first_s is not None]
    if not known_s:
        return None
    endings_ns = [ns for run in runs if not persistent for ns in run.endings_ns]
    started_s = start_up_s(min(known_s), runs[0].fetches, runs[0].batch_s)
    return started_s + min(endings_ns, default=0) / 1e9


def _paces(loader: Any, runs: ThreeRuns) -> Paces:
    alone, step, together = runs[:3]
    waits_ns = [iteration.wait_ns for _, iteration in together.steady]
    return Paces(
        loader_s=alone.batch_s,
        step_s=step.whole_s,
        step_cpu_s=step.cpu_s,
        step_delay_s=min(step.delay_s, step.whole_s),
        together_s=together.batch_s,
        wait_s=mean_s(waits_ns),
        waited_share=fmean([wait_ns > READY_NS for wait_ns in waits_ns] or [0.0]),
        sampling_s=together.sampling_s,
        start_up_s=start_up_of([alone, together], has_persistent_workers(loader)),
        filling_s=filling_s(alone.fetches),
        epoch=max([*alone.lengths, *together.lengths], default=length(loader)),
    )


def _kind(loader: Any) -> Kind:
    """Return how the loader gets its samples."""
    inner = data_loader_in(loader)
    if inner is None:
        return "no DataLoader"
    if isinstance(inner.dataset, IterableDataset):
        return "stream"
    return "batches of samples" if inner is loader and inner.batch_sampler else "samples"


def _parts_of(step: Run, copy_s: float | None) -> StepParts:
    """Divide the step into computing, copying without computing, and the host alone.

    If a step records no spans, only the copy is known, from a separate copy of the same batch.
    """
    spans, count = step.trace.spans, len(step.iterations)
    compute = compute_spans(spans)
    if not compute:
        transfer_s = None if copy_s is None else min(copy_s, step.whole_s)
        return StepParts(has_device=step.used_device, transfer_s=transfer_s)
    copies = [span for span in spans if span.stage == "transfer"]
    computing = _length(compute) / count
    copying = _length([*compute, *copies]) / count - computing
    host = max(0.0, step.whole_s - computing - copying - step.delay_s)
    return StepParts(has_device=True, compute_s=computing, transfer_s=copying, host_s=host)


def _setting(loader: Any, runs: ThreeRuns) -> Setting:
    alone, inner, cores = runs.alone, data_loader_in(loader), usable_cores()
    context = getattr(inner, "multiprocessing_context", None) or multiprocessing
    return Setting(
        kind=_kind(loader),
        batch_size=getattr(inner, "batch_size", None) or 0,
        has_getitems=reads_whole_batches(inner),
        has_in_order=hasattr(inner, "in_order"),
        workers=alone.workers,
        active_workers=active_workers(_kind(loader), alone.workers, alone.fetches),
        prefetch_factor=int(getattr(inner, "prefetch_factor", None) or 2),
        start_method=str(context.get_start_method()),
        cores=cores,
        worker_cores=min(len(alone.cores) or cores, cores),
        free_bytes=float(memory_free()),
        others_cores=runs.others_cores,
    )


def _fetching(alone: Run, step: Run) -> Fetching:
    if alone.fetches:
        locked_share = fmean(alone.lock_checks) if alone.lock_checks else None
        return replace(fetching_of(alone.fetches), locked_share=locked_share)
    # Only the total is known for a loader that is not a DataLoader. Processes that are always busy
    # do not load.
    loading_cores = max(0.0, alone.children_cores - step.children_cores)
    computing_s = min(alone.batch_s, alone.cpu_s + loading_cores * alone.batch_s)
    delay_s = min(alone.delay_s, alone.batch_s - computing_s)
    return Fetching(fetch_s=alone.batch_s, computing_s=computing_s, delay_s=delay_s)


def _moving(runs: ThreeRuns) -> Moving:
    alone, replay = runs.alone, runs.replay
    moving = Moving(batch_bytes=replay.nbytes, **replay.contents._asdict())
    if not alone.workers:
        return moving
    receiving_s = max(0.0, alone.cpu_s - alone.sampling_s)
    sending_s = sent_s(alone.fetches) + receiving_s if alone.fetches else 0.0
    return replace(moving, receiving_s=receiving_s, sending_s=sending_s)


def _length(spans: Sequence[Span]) -> float:
    merged = union((span.start_ns, span.end_ns) for span in spans)
    return sum(end - start for start, end in merged) / 1e9
