"""Turn the three runs of a loop into the figures that a verdict rests on."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import psutil
from torch.utils.data import DataLoader

from course_utils.measure.diagnosis.epochs import length
from course_utils.measure.diagnosis.gauges import Fetch
from course_utils.measure.diagnosis.measurements import Measurements
from course_utils.measure.diagnosis.runs import Run
from course_utils.measure.process import affinity
from course_utils.measure.spans import LOADING, Span, compute_spans, union

SLOW = 8  # times the median
BESIDE = 0.2  # of the fetching thread's processor time: less is the sending of batches
READY_S = 0.002  # a batch that comes within this time was there already


def gather(loader: Any, alone: Run, step: Run, together: Run, trial: Run | None) -> Measurements:
    """Return the figures of these runs; `trial` is the loader with thread pools of one thread."""
    fetches = _steady_fetches(alone.fetches)
    workers = alone.workers
    is_loader = isinstance(loader, DataLoader)
    fetch_s = _mean([f.wall for f in fetches]) if fetches else alone.batch_s
    waits = [b.got - b.asked for _, b in together.steady]
    return Measurements(
        loader_s=alone.batch_s,
        step_s=step.whole_s,
        step_delay_s=min(step.delay_s, step.whole_s),
        together_s=together.batch_s,
        wait_s=together.wait_s,
        waited_share=sum(wait > READY_S for wait in waits) / max(1, len(waits)),
        start_up_s=_start_up(loader, alone, together, fetches),
        epoch=_epoch(loader, alone, together),
        **_parts_of_the_step(step),
        workers=workers,
        prefetch_factor=int(getattr(loader, "prefetch_factor", None) or 2),
        persistent=bool(getattr(loader, "persistent_workers", False)),
        pinned=bool(getattr(loader, "pin_memory", False)),
        start_method=_start_method(loader) if workers else "",
        cores=len(affinity(0)) or multiprocessing.cpu_count(),
        worker_cores=len(alone.cores) or len(affinity(0)) or multiprocessing.cpu_count(),
        fetch_s=fetch_s,
        computing_s=_computing(fetches) if fetches else min(fetch_s, alone.cpu_s),
        delay_s=_mean([f.delay for f in fetches]),
        collate_s=_mean([f.collate for f in fetches]),
        stages=_stages(alone),
        **_slow_ones(fetches),
        pool_threads=int(max((f.pool_threads for f in fetches), default=1)),
        one_thread_gain=_one_thread_gain(alone, trial) if trial else 1.0,
        asked_bytes=_per_batch(fetches, "asked_bytes"),
        disk_bytes=_per_batch(fetches, "disk_bytes"),
        batch_bytes=alone.weight.nbytes if alone.weight else 0,
        pickle_s=alone.weight.pickle_s if alone.weight else 0.0,
        receiving_s=alone.cpu_s if workers or not is_loader else 0.0,
        sending_s=_sending(alone, fetches) if workers and is_loader else 0.0,
        **max(_memory(alone.fetches), _memory(together.fetches), key=lambda m: m["grown_bytes"]),
        free_bytes=float(psutil.virtual_memory().available),
    )


def _steady_fetches(fetches: Sequence[Fetch]) -> list[Fetch]:
    """Leave out the first fetch of each worker, which opens files and imports, if others remain."""
    firsts = {fetch.worker: fetch for fetch in reversed(fetches)}
    return [fetch for fetch in fetches if fetch is not firsts[fetch.worker]] or list(fetches)


def _computing(fetches: Sequence[Fetch]) -> float:
    """Return the time in which a fetch computed, be it in threads of a pool that it waited for."""
    return _mean([min(max(f.cpu, f.process_cpu), max(f.wall - f.delay, f.cpu)) for f in fetches])


def may_be_oversubscribed(run: Run) -> bool:
    """Tell whether other threads than the one that fetches compute as well."""
    fetches = _steady_fetches(run.fetches)
    beside = _mean([f.process_cpu - f.cpu for f in fetches])
    return beside > BESIDE * _mean([f.cpu for f in fetches]) and any(
        f.pool_threads > 1 for f in fetches
    )


def _one_thread_gain(alone: Run, trial: Run) -> float:
    """Return how many times quicker, and cheaper, a batch is with thread pools of one thread.

    The smaller of the two: threads that help save time and cost as much processor time as one does.
    """
    before, after = (
        _mean([f.process_cpu for f in _steady_fetches(run.fetches)]) for run in (alone, trial)
    )
    if not (after and trial.batch_s):
        return 1.0
    return min(alone.batch_s / trial.batch_s, before / after)


def _per_batch(fetches: Sequence[Fetch], name: str) -> float:
    """Return by how much a total of the workers' processes grew for each batch."""
    grown, batches = 0.0, 0
    for worker in {f.worker for f in fetches}:
        own = [getattr(f, name) for f in fetches if f.worker == worker]
        # a new epoch may have begun with a new process, which counts from zero
        steps = [after - before for before, after in pairwise(own) if after >= before]
        grown, batches = grown + sum(steps), batches + len(steps)
    return grown / batches if batches else 0.0


def _sending(alone: Run, fetches: Sequence[Fetch]) -> float:
    """Return the processor time for a batch that is not spent in fetching it."""
    beside = _per_batch(fetches, "total_cpu") - _mean([f.cpu for f in fetches])
    return max(0.0, beside) + alone.cpu_s


def _start_up(loader: Any, alone: Run, together: Run, fetches: Sequence[Fetch]) -> float:
    """Return the time of each epoch before anything loads; persistent workers need it once."""
    runs = [run for run in (alone, together) if run.starts]
    if getattr(loader, "persistent_workers", False):
        return 0.0
    first = min(run.first_s for run in runs)
    return max(0.0, first - median([f.wall for f in fetches] or [alone.batch_s]))


def _epoch(loader: Any, *runs: Run) -> int | None:
    known = [count for run in runs for count in run.lengths]
    return max(known) if known else length(loader)


def _parts_of_the_step(run: Run) -> dict[str, Any]:
    """Divide the step by what ran: a computation, else a copy, else nothing but the host.

    Of a step that records no spans only the copy is known, from a copy of the same batch alone.
    """
    spans, count = run.trace.spans, len(run.turns)
    compute = compute_spans(spans)
    if not compute:
        return {"transfer_s": min(run.copy_s, run.whole_s)}
    copies = [span for span in spans if span.stage == "transfer"]
    computing = _length(compute) / count
    copying = _length([*compute, *copies]) / count - computing
    return {
        "compute_s": computing,
        "transfer_s": copying,
        "host_s": max(0.0, run.whole_s - computing - copying - run.delay_s),
    }


def _length(spans: Sequence[Span]) -> float:
    merged = union((span.start_ns, span.end_ns) for span in spans)
    return sum(end - start for start, end in merged) / 1e9


def _stages(run: Run) -> dict[str, float]:
    """Return the seconds of each stage that the dataset names, per batch."""
    spans = [span for span in run.trace.spans if span.stage in LOADING and span.batch >= 0]
    batches = len({span.batch for span in spans})
    found: dict[str, float] = {}
    for span in spans:
        found[span.stage] = found.get(span.stage, 0.0) + span.duration_ns / 1e9 / batches
    # "read" alone is what an unnamed fetch is called
    return found if set(found) - {"read", "collate"} else {}


def _slow_ones(fetches: Sequence[Fetch]) -> dict[str, Any]:
    walls = [fetch.wall - fetch.delay for fetch in fetches]
    if not walls:
        return {}
    usual = median(walls)
    slow = [wall for wall in walls if wall > SLOW * usual]
    return {
        "slow_share": len(slow) / len(walls),
        "slow_time": sum(wall - usual for wall in slow) / max(sum(walls), 1e-9),
        "slowest_s": max(walls),
    }


def _memory(fetches: Sequence[Fetch]) -> dict[str, Any]:
    """Return what memory the workers had of their own, by how much it grew, and grew late."""
    first = grown = late = 0.0
    for worker in {f.worker for f in fetches}:
        own = [f.unique_bytes for f in fetches if f.worker == worker and f.unique_bytes]
        if len(own) >= 3:
            third = len(own) // 3
            last = median(own[-third:])  # batches come and go
            first, grown = first + own[0], grown + last - own[0]
            late += last - median(own[third:-third])
    return {
        "own_bytes": first,
        "grown_bytes": grown,
        "grown_late_bytes": late,
        "watched": len(fetches),
    }


def _start_method(loader: Any) -> str:
    context = getattr(loader, "multiprocessing_context", None) or multiprocessing
    return str(context.get_start_method())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
