"""Run the loader alone, the step alone on loaded batches, and both together.

Each run records its iterations and the size of a batch. A `Run` contains raw data only, without
any interpretation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from itertools import count
from operator import attrgetter
from statistics import fmean
from typing import Any

import torch
from torch.utils.data import DataLoader

from keepfed.limits import affinity
from keepfed.measure.advice.thresholds import (
    AGREEMENT,
    ENOUGH_EPOCHS,
    ENOUGH_ITERATIONS,
    ENOUGH_S,
    GRACE_S,
    MIN_ITERATIONS,
)
from keepfed.measure.diagnosis.batch_cost import ACCELERATOR, copy_s, measure_batch
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.hook import (
    ProcessFigures,
    StackListener,
    contents_of,
    data_loader_in,
    delay_ns,
    end,
    is_lock_contended,
    time_sampler,
    traced_batches,
)
from keepfed.measure.neighbors import Neighbors, children_cpu_s
from keepfed.measure.records import Iteration, warm_up_batches
from keepfed.measure.spans import Span, compute_spans
from keepfed.measure.stacks import StackSampler
from keepfed.measure.throughput import length, prefetched
from keepfed.measure.trace import Trace, record

Step = Callable[[Any], Any]

LOCK_CHECK_NS = 20_000_000  # ns between two checks whether workers wait for a lock
CHECK_AGAIN = 1.1  # growth of the run between two checks, because a check delays the loop
KEPT_BATCHES, KEPT_BYTES = 8, 1 << 28  # maximum batches and bytes kept for the step alone
WARM_UP = 3  # steps that include allocations and the choice of kernels, and do not count


def run_loop(
    loader: Iterable[Any],
    step: Step | None,
    *,
    seconds: float,
    first: Step | None = None,
    keep: bool = False,
    whole_epochs: bool = False,
    synchronize: Callable[[], Any] | None = None,
    stacks: StackSampler | None = None,
) -> Run:
    """Iterate over `loader`, with several epochs if they are short, for about `seconds`.

    Args:
        loader: The loader. All its workers end with the run, including persistent ones.
        step: Function called with each batch. None runs the loader alone.
        first: Function called with the first batch, before the measurement.
        seconds: Maximum duration. The run ends earlier if the speed is stable, and slightly later
            if there are too few batches.
        keep: If True, keep a few batches.
        whole_epochs: If True, continue until a second epoch is complete.
        synchronize: Function that waits until the device has finished. None uses torch's own.
        stacks: Sampler of this process. Its sink samples the workers.
    """
    deadline = time.perf_counter() + seconds
    inner = data_loader_in(loader)
    with ExitStack() as stack:
        trace = stack.enter_context(record())
        dropped = warm_up_batches(prefetched(loader), length(loader))
        run = Run(trace, dropped=dropped, whole_epochs=whole_epochs)
        neighbors = Neighbors()
        if inner is not None:
            stack.callback(_end_persistent, inner)
        else:
            stack.enter_context(_record_children_cpu(run))

        def take(batch: Any) -> None:
            if keep:
                _keep(run, batch)
            if first is not None and not run.iterations:
                first(_copy_containers(batch))
            if step is not None:
                step(batch)

        def finish() -> None:
            if step is not None and run.iterations:  # the device may not have finished its work
                _synchronize_device(run, synchronize)

        while _run_epoch(run, loader, take, deadline, finish, stacks) and not has_enough(run):
            pass
        finish()
        run.others_cores = neighbors.cores()
    run.fetches = sorted(trace.fetches, key=attrgetter("ended_ns"))
    if step is not None and not compute_spans(trace.spans):  # the step records no spans
        for number, one in enumerate(run.iterations):
            trace.add(Span("main", "compute", one.got_ns, one.left_ns, number))
    return run


@contextmanager
def _record_children_cpu(run: Run) -> Iterator[None]:
    before, begun = children_cpu_s(), time.perf_counter()
    yield
    run.children = max(0.0, children_cpu_s() - before) / (time.perf_counter() - begun)


def first_again_s(loader: Iterable[Any]) -> float:
    """Return the seconds to the first batch of a second epoch of persistent workers."""
    inner, took_s = data_loader_in(loader), 0.0
    try:
        for _ in range(2):
            begun = time.perf_counter()
            batches = iter(loader)
            next(batches, None)
            took_s = time.perf_counter() - begun
            end(batches)
    finally:
        if inner is not None:
            _end_persistent(inner)
    return took_s


def _end_persistent(loader: DataLoader[Any]) -> None:
    """End persistent workers, so that the next run starts workers that record their fetches."""
    workers, loader._iterator = loader._iterator, None
    end(workers, orderly=False)


def _run_epoch(
    run: Run,
    loader: Iterable[Any],
    take: Step,
    deadline: float,
    finish: Callable[[], None],
    stacks: StackSampler | None,
) -> bool:
    """Run an epoch or a part of it, and return whether another epoch is useful.

    `finish` is called before the workers of an incomplete epoch are ended. `stacks` samples this
    process only after the workers have started, because a process with threads should not fork.
    """
    started: list[Iterator[Any]] = []  # iterator of the loader, then of the DataLoader inside it

    def note(batches: Iterator[Any]) -> None:
        started.append(batches)
        if sampler := time_sampler(batches):
            run.samplers.append(sampler)
        if stacks is not None:
            stacks.start()

    epoch, index = len(run.starts_ns), 0
    run.starts_ns.append(asked_ns := time.perf_counter_ns())
    traced = traced_batches(
        run.trace,
        loader,
        figures=ProcessFigures(),
        listeners=[StackListener(stacks.folder, stacks.name)] if stacks is not None else [],
        started=note,
    )
    with closing(traced) as batches:
        try:
            for batch in batches:
                got_ns = time.perf_counter_ns()
                take(batch)
                run.iterations.append(_finished_iteration(run, epoch, index, asked_ns, got_ns))
                if index == 1 or not run.workers:
                    _note_workers(run, started)
                _check_locks(run)
                asked_ns, index = time.perf_counter_ns(), index + 1
                if _time_is_up(run, deadline) or has_enough(run):
                    finish()
                    for iterator in reversed(started):
                        end(iterator)
                    return False
        except BaseException:
            for iterator in reversed(started):
                end(iterator, orderly=False)
            raise
        finally:
            if stacks is not None:
                stacks.stop()
    run.lengths.append(index)
    if index:
        run.endings_ns.append(time.perf_counter_ns() - asked_ns)
    return index > 1 and not _time_is_up(run, deadline)


def _finished_iteration(run: Run, epoch: int, place: int, asked_ns: int, got_ns: int) -> Iteration:
    """Return an iteration that ends now."""
    return Iteration(
        len(run.iterations), epoch, place, asked_ns, got_ns, time.perf_counter_ns(),
        total_cpu_ns=time.process_time_ns(), total_delay_ns=delay_ns(),
    )  # fmt: skip


def _time_is_up(run: Run, deadline: float) -> bool:
    """Return whether the time is up, with some extra seconds for a run that has just begun."""
    now = time.perf_counter()
    if now < deadline:
        return False
    begun = run.iterations[0].got_ns / 1e9 if run.iterations else now
    return now > max(deadline, begun) + GRACE_S or len(run.steady) >= MIN_ITERATIONS


def has_enough(run: Run) -> bool:
    """Return whether there are enough iterations and both halves have the same speed."""
    if not run.iterations:
        return False
    if run.whole_epochs:
        return len(run.lengths) > ENOUGH_EPOCHS
    end_ns = run.iterations[-1].left_ns
    lasted_s = (end_ns - run.starts_ns[0]) / 1e9
    if len(run.lengths) >= ENOUGH_EPOCHS and lasted_s > 2 * ENOUGH_S:
        return True
    lasted_s = (end_ns - run.iterations[0].left_ns) / 1e9
    if len(run.iterations) < run.next_check or lasted_s < ENOUGH_S:
        return False
    run.next_check = CHECK_AGAIN * len(run.iterations)
    paces_s = [(b.left_ns - a.left_ns) / 1e9 for a, b in run.steady]
    if len(paces_s) < ENOUGH_ITERATIONS or sum(paces_s) < ENOUGH_S:
        return False
    half = len(paces_s) // 2
    first_s, second_s = fmean(paces_s[:half]), fmean(paces_s[half:])
    return abs(first_s - second_s) <= AGREEMENT * max(first_s, second_s)


def _note_workers(run: Run, started: Sequence[Iterator[Any]]) -> None:
    workers = {worker for batches in started for worker in getattr(batches, "_workers", ())}
    run.workers, run.pids = len(workers), [worker.pid for worker in workers]
    for pid in run.pids:
        run.cores |= affinity(pid)


def _check_locks(run: Run) -> None:
    now_ns = run.iterations[-1].left_ns
    if len(run.pids) > 1 and now_ns > run.next_lock_check_ns:
        run.lock_checks += 1
        run.lock_waits += is_lock_contended(run.pids)
        run.next_lock_check_ns = now_ns + LOCK_CHECK_NS


def _keep(run: Run, batch: Any) -> None:
    if not run.kept:
        _, run.batch_bytes, run.pickle_s = measure_batch(batch)
        run.contents = contents_of(batch)
    if len(run.kept) < KEPT_BATCHES and len(run.kept) * run.batch_bytes <= KEPT_BYTES:
        run.kept.append(batch)


def run_step(
    step: Step,
    batches: Sequence[Any],
    *,
    seconds: float,
    synchronize: Callable[[], Any] | None,
    stacks: StackSampler | None = None,
) -> Run:
    """Run `step` alone on a few batches repeatedly, until the device has finished."""
    started, on_device = time.perf_counter(), _memory_figures()
    with record() as trace:
        result = None
        for number in range(WARM_UP):
            result = step(_copy_containers(batches[number % len(batches)]))
            if time.perf_counter() - started > seconds / 2:
                break
        _wait_for_device(result, trace, synchronize)
    with record() as trace, stacks or nullcontext():
        run = Run(trace, starts_ns=[time.perf_counter_ns()])
        with _record_children_cpu(run):
            for number in count():
                asked_ns = time.perf_counter_ns()
                batch = _copy_containers(batches[number % len(batches)])
                got_ns = time.perf_counter_ns()
                trace.batch = number
                result = step(batch)
                run.iterations.append(_finished_iteration(run, 0, number, asked_ns, got_ns))
                if time.perf_counter() - started > seconds or has_enough(run):
                    break
            _wait_for_device(result, trace, synchronize)
            run.iterations[-1] = run.iterations[-1]._replace(left_ns=time.perf_counter_ns())
    run.used_device = _memory_figures() != on_device
    if run.used_device:
        device = getattr(ACCELERATOR, "current_accelerator", lambda: torch.device("cuda"))()
        # A Mac GPU has no float64 (TypeError), so the step cannot copy it either. If the model
        # fills the device, there is no memory for a second batch (RuntimeError).
        with suppress(TypeError, RuntimeError):
            run.copy_s = copy_s(measure_batch(batches[0])[0], device)
    return run


def _memory_figures() -> dict[str, int]:
    """Return the allocator statistics of the accelerator, which change with any work on it.

    The result is empty without an accelerator, before its first use, and if torch has no
    statistics.
    """
    try:
        return dict(ACCELERATOR.memory_stats()) if ACCELERATOR.is_available() else {}
    except RuntimeError:
        return {}


def _synchronize_device(run: Run, synchronize: Callable[[], Any] | None) -> None:
    """Extend the last iteration until the device has finished its work."""
    begun_ns = time.perf_counter_ns()
    _wait_for_device(None, run.trace, synchronize)
    last = run.iterations[-1]  # the workers may have ended after it, which must not count
    left_ns = last.left_ns + time.perf_counter_ns() - begun_ns
    run.iterations[-1] = last._replace(left_ns=left_ns)


def _device_in_use() -> bool:
    """Return whether this program may have used an accelerator, without initializing CUDA."""
    if torch.cuda.is_available():
        return torch.cuda.is_initialized()  # type: ignore[no-untyped-call, no-any-return]
    return bool(ACCELERATOR.is_available())


def _wait_for_device(result: Any, trace: Trace, synchronize: Callable[[], Any] | None) -> None:
    """Wait until the device has finished its work.

    A step may return a loss, and reading it waits for the device. An emulated device records the
    time at which it will finish.
    """
    if synchronize is not None:
        synchronize()
        return
    if _device_in_use():
        ACCELERATOR.synchronize()
    item = getattr(result, "item", None)
    if callable(item) and getattr(result, "numel", lambda: 1)() == 1:
        item()
    time.sleep(max(0, trace.last_ns - time.perf_counter_ns()) / 1e9)


def _copy_containers(batch: Any) -> Any:
    """Return `batch` in new containers that a step may change, with the same tensors."""
    if type(batch) is dict:
        return {key: _copy_containers(value) for key, value in batch.items()}
    if type(batch) is list:
        return [_copy_containers(part) for part in batch]
    return batch
