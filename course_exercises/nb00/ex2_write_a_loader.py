"""Exercise 00.2: feed the GPU with a loader of one's own."""

from collections.abc import Iterable
from math import ceil
from typing import Any

from course_utils.hardware.storage import SlowFileSystem
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo, wrong
from keepfed.measure.spans import compute_spans
from keepfed.measure.trace import Trace
from keepfed.words import percent, plural

TARGET = 0.05
STARTING = 8  # steps in which the workers may still be starting


@exercise("00.2", title="Feed the GPU with your own loader")
def write_a_loader(loader: Any, naive: Trace, fed: Trace, storage: SlowFileSystem) -> Verdict:
    """Judge the trace of the learner's loader beside the naive one, and what was read for it."""
    _judge_the_job(naive, fed, storage)
    idle, before = _idle_once_running(fed), naive.summary()
    workers = sum(lane.startswith("worker") for lane in fed.lanes)
    if idle >= TARGET and getattr(loader, "num_workers", None) == 0:
        if not loader.pin_memory:
            return todo("The loader is still the naive one. Give it workers, and run it again.")
        return wrong(
            "One process still loads every batch, file after file, so the loop takes as long as "
            "before. Pinned memory makes the copy faster, not the loading.",
            "Give the loader workers: num_workers=2, for a start.",
        )
    started = getattr(loader, "num_workers", workers)
    expect(
        workers == min(started, fed.summary().steps),
        f"The trace shows {plural(workers, 'worker')}, your loader has {started}: it is another's.",
        "Run the cell with train(my_loader) again, then this one.",
    )
    load_ms, step_ms = _mean_ms(naive, "wait"), _mean_ms(naive, "compute")
    if idle >= TARGET and workers * step_ms >= load_ms:
        needed = ceil(load_ms / step_ms)
        return todo(
            f"The machine was too busy to judge this: {workers} workers are enough, and yet the "
            f"GPU was idle {percent(idle)} of the time. Close what else runs, take {needed} or "
            f"{needed + 1} workers, and run the last cells again."
        )
    expect(
        idle < TARGET,
        f"Once the workers are running, the GPU is still idle {percent(idle)} of the time. "
        "Fetching further ahead does not load faster; only more workers side by side do.",
        "Divide the load time of a batch by the step time: that many workers, or one or two more.",
    )
    expect(
        workers * step_ms > 0.8 * load_ms,
        f"{plural(workers, 'worker')} cannot make a batch of {load_ms:.0f} ms in every step of "
        f"{step_ms:.0f} ms, and yet the GPU is fed: your loader reads something else, or from a "
        "faster storage.",
        "Run the cells from the first one on again, and change nothing but the loader.",
    )
    batches = getattr(loader, "batch_sampler", None)
    expect(
        batches is None or _order(batches) != _order(batches),
        "The GPU is fed, but with the samples in the same order in every epoch. The naive loader "
        "shuffles; that costs no time, and the training needs it.",
        "Give your loader shuffle=True again, and run the last cells once more.",
    )
    distinct = ", all distinct" if fed.summary().complete else ""
    return right(
        f"Idle {percent(before.idle)} before, {percent(idle)} once the loop was running, with as "
        f"many samples{distinct}. The first step came after {fed.summary().start_up_s:.1f} s: to "
        "start workers is not free, least of all under spawn."
    )


def _judge_the_job(naive: Trace, fed: Trace, storage: SlowFileSystem) -> None:
    """Refuse a loop that is faster since it does something else."""
    summary, before = fed.summary(), naive.summary()
    expect(
        summary.samples >= before.samples,
        f"Your loop served {summary.samples:,} samples, the naive one {before.samples:,}: a loop "
        "that does less is not faster.",
        "Give the loader the same dataset, and leave no batch out.",
    )
    expect(
        summary.steps == before.steps,
        f"Your loop took {summary.steps} steps, the naive one {before.steps}: with another batch "
        "size it is another job.",
        "Set batch_size back to what it was.",
    )
    expect(
        summary.complete is not False,
        "Some samples were served more than once. Repeating what is already loaded costs nothing "
        "and teaches the network nothing: such a speed-up is void.",
        "Give the loader the same dataset with shuffle=True.",
    )
    ratio = _mean_ms(fed, "compute") / _mean_ms(naive, "compute")
    expect(
        0.8 < ratio < 1.15,
        f"A step takes {ratio:.1f} times as long as in the naive loop. A slower GPU is easy to "
        "feed, but then the training takes longer.",
        "Run the cell that makes `gpu` again, and leave its step_ms alone.",
    )
    opened = storage.counters().opens
    expect(
        opened >= before.samples,
        f"While your loop ran, only {opened:,} of {before.samples:,} files were opened on the slow "
        "storage. Samples from memory or from another disk come fast, but the loader has learnt "
        "nothing from it.",
        "Load `dataset` with its fs=storage inside the loop, and run the cells from "
        "storage.reset_counters() on again.",
    )


def _order(batches: Iterable[Iterable[int]]) -> list[int]:
    """Return the numbers of the samples of an epoch, as they would be asked for."""
    return [int(index) for batch in batches for index in batch]


def _idle_once_running(trace: Trace) -> float:
    """Return the idle share between the steps after the first `STARTING`."""
    steps = compute_spans(trace.spans)[STARTING - 1 :]
    busy = sum(step.duration_ns for step in steps[1:])
    return 1 - busy / (steps[-1].end_ns - steps[0].end_ns)


def _mean_ms(trace: Trace, stage: str) -> float:
    lasted = [span.duration_ns / 1e6 for span in trace.spans if span.stage == stage]
    return sum(lasted) / max(1, len(lasted))
