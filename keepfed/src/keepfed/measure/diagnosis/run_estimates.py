"""Estimate the measurements of a loop from three runs: loader, step, and both together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from keepfed.errors import KeepfedError
from keepfed.limits import memory_free, usable_cores
from keepfed.measure.advice import (
    Fetching,
    Kind,
    Measurements,
    Moving,
    Paces,
    Setting,
    StepParts,
    WorkerMemory,
    active_workers,
    cpu_per_batch_s,
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
from keepfed.measure.hook import data_loader_in, reads_whole_batches
from keepfed.measure.spans import Span, compute_spans, union
from keepfed.measure.throughput import length


def estimate(
    loader: Any, alone: Run, step: Run, together: Run, trial: Run | None = None
) -> Measurements:
    """Return the measurements of these runs.

    `trial` is a run of the loader with thread pools limited to one thread.
    """
    inner = data_loader_in(loader)
    memories: list[WorkerMemory] = [memory_of(run.fetches) for run in (alone, together)]
    fetching = _fetching(alone, step)
    if trial is not None:
        fetching = replace(fetching, one_thread_gain=_one_thread_gain(alone, trial))
    return Measurements(
        paces=_paces(loader, alone, step, together),
        step=_parts_of(step),
        setting=_setting(loader, inner, alone),
        fetching=fetching,
        moving=_moving(inner, alone),
        memory=max(memories, key=lambda memory: memory.grown_bytes),
    )


def check_batches(run: Run, seconds: float) -> None:
    """Raise an error if a run is too short for a diagnosis."""
    if not run.iterations:
        raise KeepfedError(
            "The loader yields no batch. Check `len(loader)`, and `drop_last` if the dataset is "
            "small."
        )
    if run.steady:
        return
    if run.lengths:
        raise KeepfedError(
            f"An epoch has only {max(run.lengths)} batches, which is too short for a diagnosis. "
            "Use a smaller `batch_size` or more samples."
        )
    raise KeepfedError(
        f"Measured only {len(run.iterations)} batches, which is too few for a diagnosis. "
        f"Increase the time: `diagnose(loader, step, seconds={3 * seconds:g})`."
    )


def cpu_s(run: Run) -> float:
    """Return the CPU time per batch in the main process and the workers."""
    return (cpu_per_batch_s(run.fetches) if run.workers else 0.0) + run.cpu_s


def starting_s(run: Run) -> float:
    """Return the seconds to the first batch without the time of loading it."""
    return start_up_s(run.first_s, run.fetches, run.batch_s)


def may_be_oversubscribed(run: Run) -> bool:
    """Return whether other threads compute besides the fetching thread."""
    fetches = steady(run.fetches)
    others_s = mean_s([fetch.process_cpu_ns - fetch.cpu_ns for fetch in fetches])
    pools = any(fetch.pool_threads > 1 for fetch in fetches)
    return pools and others_s > POOL_CPU_SHARE * mean_s([fetch.cpu_ns for fetch in fetches])


def _paces(loader: Any, alone: Run, step: Run, together: Run) -> Paces:
    waits_ns = [one.wait_ns for _, one in together.steady]
    epochs = [*alone.lengths, *together.lengths]
    return Paces(
        loader_s=alone.batch_s,
        step_s=step.whole_s,
        step_cpu_s=step.cpu_s,
        step_delay_s=min(step.delay_s, step.whole_s),
        together_s=together.batch_s,
        wait_s=mean_s(waits_ns),
        waited_share=fmean([wait_ns > READY_NS for wait_ns in waits_ns] or [0.0]),
        sampling_s=together.sampling_s,
        start_up_s=_start_up(loader, alone, together),
        filling_s=filling_s(alone.fetches),
        epoch=max(epochs) if epochs else length(loader),
    )


def _start_up(loader: Any, alone: Run, together: Run) -> float:
    """Return the seconds per epoch in which nothing is loaded.

    Persistent workers start only once, so the later epochs count.
    """
    if getattr(data_loader_in(loader), "persistent_workers", False):
        again = [run.first_again_s for run in (alone, together) if len(run.starts_ns) > 1]
        return start_up_s(min(again), alone.fetches, alone.batch_s) if again else 0.0
    endings_s = [run.ending_s for run in (alone, together) if run.endings_ns]
    first_s = min(run.first_s for run in (alone, together) if run.starts_ns)
    return start_up_s(first_s, alone.fetches, alone.batch_s) + min(endings_s, default=0.0)


def _kind(loader: Any) -> Kind:
    """Return how the loader gets its samples."""
    inner = data_loader_in(loader)
    if inner is None:
        return "no DataLoader"
    if isinstance(inner.dataset, IterableDataset):
        return "stream"
    return "batches of samples" if inner is loader and inner.batch_sampler else "samples"


def _parts_of(step: Run) -> StepParts:
    """Divide the step into computing, copying without computing, and the host alone.

    If a step records no spans, only the copy is known, from a separate copy of the same batch.
    """
    spans, count = step.trace.spans, len(step.iterations)
    compute = compute_spans(spans)
    if not compute:
        copy_s = min(step.copy_s, step.whole_s)
        return StepParts(has_device=step.used_device, transfer_s=copy_s)
    copies = [span for span in spans if span.stage == "transfer"]
    computing = _length(compute) / count
    copying = _length([*compute, *copies]) / count - computing
    host = max(0.0, step.whole_s - computing - copying - step.delay_s)
    return StepParts(has_device=True, compute_s=computing, transfer_s=copying, host_s=host)


def _setting(loader: Any, inner: DataLoader[Any] | None, alone: Run) -> Setting:
    cores = usable_cores()
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
        others_cores=alone.others_cores,
    )


def _fetching(alone: Run, step: Run) -> Fetching:
    if alone.fetches:
        locked = alone.lock_waits / alone.lock_checks if alone.lock_checks else None
        return replace(fetching_of(alone.fetches), locked_share=locked)
    # Only the total is known for a loader that is not a DataLoader.
    loading = max(0.0, alone.children - step.children)  # without processes that are always busy
    computing_s = min(alone.batch_s, alone.cpu_s + loading * alone.batch_s)
    delay_s = min(alone.delay_s, alone.batch_s - computing_s)
    return Fetching(fetch_s=alone.batch_s, computing_s=computing_s, delay_s=delay_s)


def _moving(loader: DataLoader[Any] | None, alone: Run) -> Moving:
    moving = Moving(batch_bytes=alone.batch_bytes, pickle_s=alone.pickle_s)
    if alone.contents is not None:
        moving = replace(moving, **alone.contents._asdict())
    if loader is None or not alone.workers:
        return moving
    sent = sent_s(alone.fetches) + alone.cpu_s if alone.fetches else 0.0
    return replace(moving, receiving_s=alone.cpu_s, sending_s=sent)


def _one_thread_gain(alone: Run, trial: Run) -> float:
    """Return the gain in time or in CPU time with one thread, whichever is smaller.

    Threads that help save time, but cost as much CPU time as one thread.
    """
    runs = alone, trial
    before, after = (mean_s([f.process_cpu_ns for f in steady(run.fetches)]) for run in runs)
    if not (after and trial.batch_s):
        return 1.0
    return min(alone.batch_s / trial.batch_s, before / after)


def _length(spans: Sequence[Span]) -> float:
    merged = union((span.start_ns, span.end_ns) for span in spans)
    return sum(end - start for start, end in merged) / 1e9
