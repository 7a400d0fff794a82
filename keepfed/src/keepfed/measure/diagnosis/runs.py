"""Iterate over a loader for a limited time, and record what happens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from operator import attrgetter
from statistics import fmean
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.formatting import plural
from keepfed.measure.accelerator import memory_figures, wait_for_device
from keepfed.measure.advice.thresholds import (
    AGREEMENT,
    ENOUGH_EPOCHS,
    ENOUGH_ITERATIONS,
    ENOUGH_S,
    GRACE_S,
    MIN_ITERATIONS,
)
from keepfed.measure.diagnosis.loop import DiagnosedLoop
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.hook import (
    ProcessFigures,
    StackListener,
    data_loader_in,
    delay_ns,
    end,
    time_sampler,
    traced_batches,
)
from keepfed.measure.neighbors import children_cpu_s
from keepfed.measure.records import Iteration, warm_up_batches
from keepfed.measure.stacks import StackSampler
from keepfed.measure.throughput import length, prefetched
from keepfed.measure.trace import record

Step = Callable[[Any], Any]

DRAIN_S = 3.0  # s that a run may take to read the batches in flight; otherwise its workers stop
CHECK_AGAIN = 1.1  # growth of the run between two checks, because a check delays the loop


def run_loop(
    loader: Iterable[Any],
    step: Step,
    synchronize: Callable[[], Any] | None = None,
    *,
    seconds: float,
    stacks: StackSampler | None = None,
) -> Run:
    """Call `step` with the batches of `loader`, in several epochs if they are short.

    Args:
        loader: The loader. All its workers end with the run, including persistent ones.
        step: Function called with each batch.
        synchronize: Function that waits until the device has finished. None uses torch's own.
        seconds: Approximate maximum duration with the start of the workers. The run ends earlier
            if its speed is stable, and later if there are too few batches.
        stacks: Sampler of this process. Its listener samples the workers.
    """
    has_time = _TimeLimit(seconds)
    inner, on_device = data_loader_in(loader), memory_figures()
    with record() as trace:
        run = Run(trace, dropped=warm_up_batches(prefetched(loader), length(loader)))
        # Only the total is known for the processes of a loader that is not a DataLoader.
        begun, children_s = time.perf_counter(), children_cpu_s() if inner is None else 0.0
        try:
            while _run_epoch(run, loader, step, has_time, synchronize, stacks):
                pass
        finally:
            if inner is not None:
                # The next run starts new workers, which record their fetches.
                workers, inner._iterator = inner._iterator, None
                end(workers, orderly=False)
    if inner is None:
        run.children_cores = (children_cpu_s() - children_s) / (time.perf_counter() - begun)
    run.used_device = memory_figures() != on_device
    run.fetches = sorted(trace.fetches, key=attrgetter("ended_ns"))
    return run


def require_batches(run: Run, seconds: float, loop: DiagnosedLoop) -> None:
    """Raise an error if a run of `seconds` is too short for a diagnosis."""
    if run.steady:
        return
    if not run.iterations:
        raise KeepfedError(
            "The loader yields no batch. Check `len(loader)`, `drop_last` if the dataset is small, "
            "and whether it yields batches each time that it is iterated."
        )
    if run.lengths:
        raise KeepfedError(
            f"An epoch has only {max(run.lengths)} batches, which is too short for a diagnosis. "
            "Use a smaller `batch_size` or more samples."
        )
    first, last, count = run.iterations[0], run.iterations[-1], len(run.iterations)
    start_s = (first.got_ns - run.starts_ns[0]) / 1e9
    batch_s = (last.left_ns - first.got_ns) / 1e9 / max(1, count - 1)
    needed_s = start_s + batch_s * (run.dropped + run.workers + MIN_ITERATIONS)
    enough = math.ceil(loop.seconds * max(1.5, 1.2 * needed_s / seconds))
    raise KeepfedError(
        f"Measured only {plural(count, 'batch')}, which is too few for a diagnosis. Increase the "
        f"time: `diagnose(loader, step, seconds={enough})`."
    )


def _run_epoch(
    run: Run,
    loader: Iterable[Any],
    step: Step,
    has_time: Callable[[Run], bool],
    synchronize: Callable[[], Any] | None,
    stacks: StackSampler | None,
) -> bool:
    """Run an epoch or a part of it, and return whether another epoch is useful."""
    iterators: list[Iterator[Any]] = []  # of the loader, and of the DataLoader inside it

    def note(batches: Iterator[Any]) -> None:
        iterators.append(batches)
        if sampler := time_sampler(batches):
            run.samplers.append(sampler)
        if stacks is not None:  # only now, because a process with threads should not fork workers
            stacks.start()

    epoch, index, result = len(run.starts_ns), -1, None
    is_complete = orderly = False
    run.starts_ns.append(asked_ns := time.perf_counter_ns())
    traced = traced_batches(
        run.trace,
        loader,
        figures=ProcessFigures(),
        listeners=[StackListener(stacks)] if stacks is not None else [],
        started=note,
    )
    with closing(traced) as batches:
        try:
            for index, batch in enumerate(batches):
                got_ns = time.perf_counter_ns()
                result = step(batch)
                run.iterations.append(_finished(run, epoch, index, asked_ns, got_ns))
                if index == 1 or not run.workers:
                    run.note_workers(iterators)
                run.check_locks()
                asked_ns = time.perf_counter_ns()
                if not has_time(run):
                    break
            else:
                is_complete = True
                run.lengths.append(index + 1)
                run.endings_ns.append(time.perf_counter_ns() - asked_ns)
            _wait_for_device(run, result, synchronize)
            batch_s = (asked_ns - run.starts_ns[0]) / 1e9 / max(1, len(run.iterations))
            orderly = batch_s * prefetched(loader) < DRAIN_S
        finally:
            if stacks is not None:
                stacks.stop()
            for iterator in () if is_complete else reversed(iterators):
                end(iterator, orderly=orderly)
    return index > 0 and has_time(run)


def _finished(run: Run, epoch: int, place: int, asked_ns: int, got_ns: int) -> Iteration:
    """Return an iteration that ends now."""
    return Iteration(
        len(run.iterations), epoch, place, asked_ns, got_ns, time.perf_counter_ns(),
        total_cpu_ns=time.process_time_ns(), total_delay_ns=delay_ns(),
    )  # fmt: skip


def _wait_for_device(run: Run, result: Any, synchronize: Callable[[], Any] | None) -> None:
    """Extend the last iteration until the device has finished its work."""
    if run.iterations:
        begun_ns, last = time.perf_counter_ns(), run.iterations[-1]
        wait_for_device(result, run.trace, synchronize)
        left_ns = last.left_ns + time.perf_counter_ns() - begun_ns
        run.iterations[-1] = last._replace(left_ns=left_ns)


class _TimeLimit:
    """Decides whether a run needs more iterations and has time for them."""

    def __init__(self, seconds: float):
        self.deadline = time.perf_counter() + seconds
        self.next_check: float = ENOUGH_ITERATIONS  # iterations at which the halves are compared

    def __call__(self, run: Run) -> bool:
        """Return whether `run` should go on."""
        if not run.iterations:
            return False
        now_s = time.perf_counter()
        grace = (
            now_s < run.iterations[0].got_ns / 1e9 + GRACE_S and len(run.steady) < MIN_ITERATIONS
        )
        if now_s > self.deadline and not grace:
            return False
        return not self._is_stable(run)

    def _is_stable(self, run: Run) -> bool:
        """Return whether there are enough iterations and both halves have the same speed."""
        lasted_s = (run.iterations[-1].left_ns - run.iterations[0].got_ns) / 1e9
        if len(run.lengths) >= ENOUGH_EPOCHS and lasted_s > 2 * ENOUGH_S:
            return True
        if len(run.iterations) < self.next_check or lasted_s < ENOUGH_S:
            return False
        self.next_check = CHECK_AGAIN * len(run.iterations)
        paces_s = [(b.left_ns - a.left_ns) / 1e9 for a, b in run.steady]
        if len(paces_s) < ENOUGH_ITERATIONS or sum(paces_s) < ENOUGH_S:
            return False
        half = len(paces_s) // 2
        halves_s = fmean(paces_s[:half]), fmean(paces_s[half:])
        return max(halves_s) - min(halves_s) <= AGREEMENT * max(halves_s)
