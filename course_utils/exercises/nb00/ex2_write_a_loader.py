"""Exercise 00.2: feed the GPU with your own loader."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

from course_utils.exercises.judging.compare import compare
from course_utils.hardware.storage import SlowFileSystem
from course_utils.hardware.storage.presets import storage_preset
from course_utils.loading.events import NpzEvents, pad_collate
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent, plural
from keepfed.measure.spans import compute_spans
from keepfed.measure.trace import Trace

TARGET = 0.05
STORAGE = replace(storage_preset("busy Lustre"), cache_mb=0)
_CALL = "my_loader.dataset[{}]".format
STARTING = 8  # steps in which the workers may still be starting


@exercise("00.2", title="Feed the GPU with your own loader")
def write_a_loader(
    loader: DataLoader[Any], naive: Trace, fed: Trace | None, storage: SlowFileSystem
) -> Verdict:
    """Check the trace of the learner's loader against the naive one, and the files it opened."""
    if fed is None:
        return todo("Run the cell with train(my_loader) first. It ended with an error.")
    workers = getattr(loader, "num_workers", -1)
    expect(
        workers >= 0,
        f"This is a {type(loader).__name__}, and the exercise asks for a DataLoader. A class with "
        "threads can load as fast, but here the loader should start worker processes.",
        "Pass the DataLoader itself: cu.check('00.2', my_loader, naive, mine, storage).",
    )
    ran = sum(lane.startswith("worker") for lane in fed.lanes)
    if ran < min(workers, naive.summary().steps) or ran > workers:
        return todo(
            f"The run had {plural(ran, 'worker')}, but my_loader has {workers}. Run the cell with "
            "train(my_loader) again."
        )
    _expect_the_same_job(naive, fed, storage)
    idle = _idle_once_running(fed)
    if idle >= TARGET and workers == 0 and not loader.pin_memory:
        return todo("The loader is still the naive one. Add workers, and run the loop again.")
    expect(
        idle < TARGET or workers > 0,
        "One process still loads every batch, file by file, so the loop takes as long as before. "
        "Pinned memory makes the copy faster, not the loading.",
        "Add workers to the loader. Start with num_workers=2.",
    )
    data: Any = loader.dataset
    compare(data.__getitem__, partial(_sample_like, data), [0, len(data) - 1], call=_CALL)
    events = [data[0], data[1]]
    compare(loader.collate_fn, pad_collate, [events], show=lambda _: "a batch of two events")
    load_ms, step_ms = _mean_ms(naive, "wait"), _mean_ms(naive, "compute")
    needed = ceil(load_ms / step_ms - 0.1)  # the load time was measured, so it is not exact
    if idle >= TARGET and workers >= needed:
        return todo(
            f"The machine was too busy to check this. {plural(workers, 'worker')} are enough, but "
            f"the GPU was idle {100 * idle:.1f} % of the time. Close other programs, use {needed} "
            f"or {needed + 1} workers, and run the last cells again."
        )
    expect(
        idle < TARGET,
        f"Once the workers run, the GPU is still idle {100 * idle:.1f} % of the time. Prefetching "
        "more batches does not make loading faster, but more workers do.",
        "Divide the load time of a batch by the step time. Use that many workers, or one more.",
    )
    expect(
        _is_shuffled(loader),
        "The GPU is fed, but every epoch has the same order. The naive loader shuffles. Shuffling "
        "costs no time, and the training needs it.",
        "Set shuffle=True again, and run the last cells once more.",
    )
    distinct = ", all distinct" if fed.summary().complete else ""
    return right(
        f"Idle {percent(naive.summary().idle)} before, {percent(idle)} once the workers run, with "
        f"the same samples{distinct}. The first step started after {fed.summary().start_up_s:.1f} "
        "s. Starting workers takes time, especially with spawn."
    )


def _expect_the_same_job(naive: Trace, fed: Trace, storage: SlowFileSystem) -> None:
    """Reject a loop that is faster because it does something else."""
    summary, before = fed.summary(), naive.summary()
    expect(
        summary.steps == before.steps and _multiset(fed) == _multiset(naive),
        f"Your loop served {summary.samples:,} samples in {summary.steps} steps. The naive loop "
        f"served {before.samples:,} in {before.steps}. They are not the same samples, each exactly "
        "once, so a speed-up would be void.",
        "Use `dataset` and batch_size=32, and leave no batch out.",
    )
    ratio = _mean_ms(fed, "compute") / _mean_ms(naive, "compute")
    expect(
        0.8 < ratio < 1.15,
        f"A step takes {ratio:.1f} times as long as in the naive loop. The two loops do different "
        "jobs, so you cannot compare their idle times.",
        "Run the cell that creates `gpu` again, and do not change its step_ms.",
    )
    expect(
        storage.preset == STORAGE,
        f"The storage is {storage.preset}, but the naive loop read from {STORAGE}.",
        "Create the storage as before, and run the cells from there again.",
    )
    opened = storage.counters().opens
    expect(
        opened >= before.samples,
        f"While your loop ran, only {opened:,} of {before.samples:,} files were opened on the slow "
        "storage. Samples from memory or from another disk are fast, but that is another job.",
        "Load `dataset` itself, and run all cells from storage.reset_counters() again.",
    )


def _sample_like(data: Any, place: int) -> Any:
    """Return the sample of this place as the naive loader reads it, but from the local disk."""
    events = NpzEvents(data_path("events"))
    (index,) = np.flatnonzero(events.labels.event_id == int(data[place]["event_id"]))
    return events[int(index)]


def _multiset(trace: Trace) -> Counter[Hashable] | None:
    return None if trace.sample_ids is None else Counter(trace.sample_ids)


def _is_shuffled(loader: DataLoader[Any]) -> bool:
    """Return whether two epochs request the samples in different orders."""
    if isinstance(loader.dataset, IterableDataset) or loader.sampler is None:
        return False
    batches: Iterable[Sequence[int]] = loader.batch_sampler or [list(loader.sampler)]
    return _order(batches) != _order(batches)


def _order(batches: Iterable[Sequence[int]]) -> list[int]:
    """Return the indices of one epoch in the order in which they would be requested."""
    return [int(index) for batch in batches for index in batch]


def _idle_once_running(trace: Trace) -> float:
    """Return the idle share between the steps after the first `STARTING`."""
    steps = compute_spans(trace.spans)[STARTING - 1 :]
    busy = sum(step.duration_ns for step in steps[1:])
    return 1 - busy / (steps[-1].end_ns - steps[0].end_ns)


def _mean_ms(trace: Trace, stage: str) -> float:
    lasted = [span.duration_ns / 1e6 for span in trace.spans if span.stage == stage]
    return sum(lasted) / max(1, len(lasted))
