"""The figures that a verdict rests on, and how they follow from the three runs of a loop.

Times are seconds per batch where nothing else is said.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from torch.utils.data import DataLoader, IterableDataset

from course_utils.limits import memory_free, usable_cores
from course_utils.measure.diagnosis.gauges import Fetch
from course_utils.measure.diagnosis.rate import length
from course_utils.measure.diagnosis.runs import Run, mean
from course_utils.measure.hook import data_loader_in, reads_whole_batches
from course_utils.measure.spans import LOADING, Span, compute_spans, union
from course_utils.words import duration

Kind = Literal["batches of samples", "samples", "stream", "no DataLoader"]

SLOW = 8  # times the median
BESIDE = 0.2  # of the fetching thread's processor time: less is the sending of batches
READY_S = 0.002  # a batch that comes within this time was there already


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What was measured of a loader, a step, and both together."""

    # the three runs
    loader_s: float
    step_s: float
    together_s: float
    wait_s: float  # of together_s: in next()
    step_delay_s: float = 0.0  # of step_s: other programs had the cores
    waited_share: float = 1.0  # of the calls of next(), together: those that found no batch ready
    start_up_s: float = 0.0  # per epoch: workers start and end, and nothing is loaded
    epoch: int | None = None  # batches in an epoch, if known
    step_cpu_s: float = 0.0  # of step_s: processor time of all threads of the main process

    # what the step is made of; None if the step says nothing of its device
    has_device: bool = False  # a GPU, real or emulated
    compute_s: float | None = None
    transfer_s: float = 0.0  # during which the device did not compute
    host_s: float = 0.0  # in which neither a copy nor a computation ran

    # the loader, and what this process has
    kind: Kind = "samples"
    batch_size: int = 0  # samples that the loader itself puts into a batch, 0: it does not
    has_getitems: bool = False  # the dataset is asked for whole batches
    workers: int = 0
    prefetch_factor: int = 2
    start_method: str = ""  # of the workers
    cores: int = 1  # that this process may use
    worker_cores: int = 1  # that the workers may use, all together

    # one fetch in one worker (without workers: in the main process)
    fetch_s: float = 0.0
    computing_s: float = 0.0  # of fetch_s: its processor was at work
    delay_s: float = 0.0  # of fetch_s: it was ready to compute and no core was free
    collate_s: float = 0.0  # of fetch_s
    stages: Mapping[str, float] = field(default_factory=dict)  # that the dataset names
    slow_share: float = 0.0  # share of the fetches that take over SLOW times the median
    slow_time: float = 0.0  # share of the fetching time that is lost so
    slowest_s: float = 0.0
    pool_threads: int = 1  # threads that a numerical library may use in a worker
    one_thread_gain: float = 1.0  # how many times faster the loader is with one; 1 if not tried
    asked_bytes: float = 0.0  # read per batch, from whatever file
    disk_bytes: float = 0.0  # of them from a disk

    # a batch on its way
    batch_bytes: int = 0
    sending_s: float = 0.0  # processor time of worker and main process beyond the fetch
    pickle_s: float = 0.0  # of one batch, forth and back, without its tensors
    receiving_s: float = 0.0  # processor time of the main process for one batch

    # memory of all workers together, bytes
    own_bytes: float = 0.0  # that each has for itself, when they had loaded a batch
    grown_bytes: float = 0.0  # by which that grew while they were watched
    grown_late_bytes: float = 0.0  # of them in the second half of that time
    watched: int = 0  # batches that were loaded meanwhile
    free_bytes: float = 1e12  # what the machine has left

    @property
    def making_s(self) -> float:
        """Time of a fetch if there is always a core for it."""
        return max(0.0, self.fetch_s - self.delay_s)

    @property
    def collating_s(self) -> float:
        """Time of the collating if there is always a core for it."""
        return self.collate_s * self.making_s / self.fetch_s if self.fetch_s else 0.0

    @property
    def waiting_s(self) -> float:
        """Time of a fetch that neither computed nor waited for a core: storage, or a lock."""
        return max(0.0, self.making_s - self.computing_s)

    @property
    def occupied_s(self) -> float:
        """Time for which a fetch would compute if the workers had their cores to themselves."""
        cores = max(1, min(self.worker_cores, self.cores))
        return self.computing_s * max(1.0, self.workers / cores)

    @property
    def pace_s(self) -> float:
        """Time in which the workers could load a batch if no other program took their cores."""
        computing = self.computing_s + max(0.0, self.sending_s - self.receiving_s)
        at_once = max(1, min(self.workers, self.worker_cores, self.cores))
        fetching = (self.computing_s + self.waiting_s) / max(1, self.workers)
        return max(computing / at_once, fetching, self.receiving_s)

    @property
    def start_up_share_s(self) -> float:
        """Start-up, and the end of the workers, shared out among the batches of an epoch."""
        return self.start_up_s / self.epoch if self.epoch else 0.0

    @property
    def turn_s(self) -> float:
        """What one batch costs the loop, its share of the start-up included."""
        return self.together_s + self.start_up_share_s

    @property
    def headspace(self) -> float:
        """How many times faster the loop would be with an infinitely fast loader."""
        return max(1.0, self.turn_s / self.step_s) if self.step_s else 1.0

    @property
    def in_flight_bytes(self) -> int:
        """Memory of the batches that wait in the queue when the step is slow."""
        return self.batch_bytes * (self.workers * self.prefetch_factor + 1)

    @property
    def grown_to_the_end_bytes(self) -> float:
        """Memory by which the workers will have grown when the epoch ends, at the late pace."""
        if not self.watched or not self.epoch:
            return self.grown_bytes
        left = max(0, self.epoch - self.watched)
        return self.grown_bytes + self.grown_late_bytes * left / (self.watched / 2)


def ms(seconds: float) -> str:
    """Return a time of a batch as it reads best."""
    return duration(seconds * 1e9)


def measured(
    loader: Any, alone: Run, step: Run, together: Run, trial: Run | None = None
) -> Measurements:
    """Return the figures of these runs; `trial` is the loader with thread pools of one thread."""
    inner = data_loader_in(loader)
    growths = (_growth(run.fetches) for run in (alone, together))
    return Measurements(
        **_paces(loader, alone, step, together),
        **_parts_of(step),
        has_device=step.used_device or bool(compute_spans(step.trace.spans)),
        **_setting(inner, alone),
        **_fetching(alone, step),
        **_moving(inner, alone),
        **max(growths, key=lambda growth: growth["grown_bytes"]),
        kind=_kind(loader),
        stages=_stages(alone),
        one_thread_gain=_one_thread_gain(alone, trial) if trial else 1.0,
    )


def _paces(loader: Any, alone: Run, step: Run, together: Run) -> dict[str, Any]:
    """Return how long the turns of the three runs took."""
    waits = [turn.got - turn.asked for _, turn in together.steady]
    epochs = [*alone.lengths, *together.lengths]
    return {
        "loader_s": alone.batch_s,
        "step_s": step.whole_s,
        "step_cpu_s": step.cpu_s,
        "step_delay_s": min(step.delay_s, step.whole_s),
        "together_s": together.batch_s,
        "wait_s": mean(waits),
        "waited_share": mean([wait > READY_S for wait in waits]),
        "start_up_s": _start_up(loader, alone, together),
        "epoch": max(epochs) if epochs else length(loader),
    }


def _start_up(loader: Any, alone: Run, together: Run) -> float:
    """Return the time of each epoch in which nothing loads; persistent workers need it once."""
    if getattr(data_loader_in(loader), "persistent_workers", False):
        return 0.0
    endings = [run.ending_s for run in (alone, together) if run.endings]
    first_s = min(run.first_s for run in (alone, together) if run.starts)
    return start_up_s(alone, first_s) + min(endings, default=0.0)


def start_up_s(run: Run, first_s: float | None = None) -> float:
    """Return the time until the first batch, beyond what loading one takes."""
    fetches = [fetch.wall for fetch in steady(run.fetches)]
    first_s = run.first_s if first_s is None else first_s
    return max(0.0, first_s - median(fetches or [run.batch_s]))


def _kind(loader: Any) -> Kind:
    """Return how the loader comes by its samples."""
    inner = data_loader_in(loader)
    if inner is None:
        return "no DataLoader"
    if isinstance(inner.dataset, IterableDataset):
        return "stream"
    return "batches of samples" if inner is loader and inner.batch_sampler else "samples"


def _parts_of(step: Run) -> dict[str, Any]:
    """Divide the step by what ran: a computation, else a copy, else nothing but the host.

    Of a step that records no spans only the copy is known, from a copy of the same batch alone.
    """
    spans, count = step.trace.spans, len(step.turns)
    compute = compute_spans(spans)
    if not compute:
        return {"transfer_s": min(step.copy_s, step.whole_s)}
    copies = [span for span in spans if span.stage == "transfer"]
    computing = _length(compute) / count
    copying = _length([*compute, *copies]) / count - computing
    host = max(0.0, step.whole_s - computing - copying - step.delay_s)
    return {"compute_s": computing, "transfer_s": copying, "host_s": host}


def _setting(loader: DataLoader[Any] | None, alone: Run) -> dict[str, Any]:
    """Return how the loader is set up, and what this machine lets it use."""
    cores = usable_cores()
    context = getattr(loader, "multiprocessing_context", None) or multiprocessing
    return {
        "batch_size": getattr(loader, "batch_size", None) or 0,
        "has_getitems": reads_whole_batches(loader),
        "workers": alone.workers,
        "prefetch_factor": int(getattr(loader, "prefetch_factor", None) or 2),
        "start_method": str(context.get_start_method()) if alone.workers else "",
        "cores": cores,
        "worker_cores": min(len(alone.cores) or cores, cores),
        "free_bytes": float(memory_free()),
    }


def _fetching(alone: Run, step: Run) -> dict[str, Any]:
    """Return what one fetch costs, in one worker."""
    fetches = steady(alone.fetches)
    if not fetches:  # of a loader that is no DataLoader only the whole is known
        loading = max(0.0, alone.children - step.children)  # not those that are busy anyway
        computing = min(alone.batch_s, alone.cpu_s + loading * alone.batch_s)
        delay = min(alone.delay_s, alone.batch_s - computing)
        return {"fetch_s": alone.batch_s, "computing_s": computing, "delay_s": delay}
    walls = [fetch.wall - fetch.delay for fetch in fetches]
    usual = median(walls)
    slow = [wall for wall in walls if wall > SLOW * usual]
    return {
        "fetch_s": mean([f.wall for f in fetches]),
        "computing_s": mean([_computing(f) for f in fetches]),
        "delay_s": mean([f.delay for f in fetches]),
        "collate_s": mean([f.collate for f in fetches]),
        "slow_share": len(slow) / len(walls),
        "slow_time": sum(wall - usual for wall in slow) / max(sum(walls), 1e-9),
        "slowest_s": max(walls),
        "pool_threads": int(max(f.pool_threads for f in fetches)),
        "asked_bytes": _per_batch(fetches, "asked_bytes"),
        "disk_bytes": _per_batch(fetches, "disk_bytes"),
    }


def _computing(fetch: Fetch) -> float:
    """Return the time in which a fetch computed, be it in threads of a pool that it waited for."""
    return min(max(fetch.cpu, fetch.process_cpu), max(fetch.wall - fetch.delay, fetch.cpu))


def _moving(loader: DataLoader[Any] | None, alone: Run) -> dict[str, Any]:
    """Return what it costs to bring a batch to the main process: what is spent beside the fetch."""
    figures = {"batch_bytes": alone.batch_bytes, "pickle_s": alone.pickle_s}
    if loader is None or not alone.workers:
        return figures
    figures["receiving_s"] = alone.cpu_s
    if fetches := steady(alone.fetches):
        beside = _per_batch(fetches, "total_cpu") - mean([f.cpu for f in fetches])
        figures["sending_s"] = max(0.0, beside) + alone.cpu_s
    return figures


def computing_s(run: Run) -> float:
    """Return the processor time of a batch in all processes that had to do with it."""
    in_workers = _per_batch(steady(run.fetches), "total_cpu") if run.workers else 0.0
    return in_workers + run.cpu_s


def _growth(fetches: Sequence[Fetch]) -> dict[str, Any]:
    """Return the memory that all workers together had for themselves, and how it grew."""
    first = grown = late = 0.0
    for worker in {f.worker for f in fetches}:
        own = [f.unique_bytes for f in fetches if f.worker == worker and f.unique_bytes]
        if len(own) >= 3:
            third = len(own) // 3
            last = median(own[-third:])  # batches come and go
            first, grown = first + own[0], grown + last - own[0]
            late += last - median(own[third:-third])
    figures = {"own_bytes": first, "grown_bytes": grown, "grown_late_bytes": late}
    return {**figures, "watched": len(fetches)}


def steady(fetches: Sequence[Fetch]) -> list[Fetch]:
    """Leave out the first fetch of each worker, which opens files and imports, if others remain."""
    firsts = {fetch.worker: fetch for fetch in reversed(fetches)}
    return [fetch for fetch in fetches if fetch is not firsts[fetch.worker]] or list(fetches)


def may_be_oversubscribed(run: Run) -> bool:
    """Tell whether other threads than the one that fetches compute as well."""
    fetches = steady(run.fetches)
    beside = mean([f.process_cpu - f.cpu for f in fetches])
    pools = any(f.pool_threads > 1 for f in fetches)
    return pools and beside > BESIDE * mean([f.cpu for f in fetches])


def _one_thread_gain(alone: Run, trial: Run) -> float:
    """Return how many times quicker, and cheaper, a batch is with thread pools of one thread.

    The smaller of the two: threads that help save time and cost as much processor time as one does.
    """
    before, after = (mean([f.process_cpu for f in steady(run.fetches)]) for run in (alone, trial))
    if not (after and trial.batch_s):
        return 1.0
    return min(alone.batch_s / trial.batch_s, before / after)


def _per_batch(fetches: Sequence[Fetch], name: str) -> float:
    """Return by how much a total of the workers' processes grew for each batch."""
    grown: list[float] = []
    for worker in {f.worker for f in fetches}:
        own = [getattr(f, name) for f in fetches if f.worker == worker]
        # a new epoch may have begun with a new process, which counts from zero
        grown += [after - before for before, after in pairwise(own) if after >= before]
    return mean(grown)


def _length(spans: Sequence[Span]) -> float:
    merged = union((span.start_ns, span.end_ns) for span in spans)
    return sum(end - start for start, end in merged) / 1e9


def _stages(run: Run) -> dict[str, float]:
    """Return the seconds of each stage that the dataset names, per batch.

    The first of each worker are left out, as in `steady`.
    """
    spans = [span for span in run.trace.spans if span.stage in LOADING and span.batch >= 0]
    spans = [span for span in spans if span.batch >= max(1, run.workers)] or spans
    batches = len({span.batch for span in spans})
    found: dict[str, float] = {}
    for span in spans:
        found[span.stage] = found.get(span.stage, 0.0) + span.duration_ns / 1e9 / batches
    # "read" alone is what an unnamed fetch is called
    return found if set(found) - {"read", "collate"} else {}
