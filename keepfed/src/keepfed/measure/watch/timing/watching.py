"""Watch the loops over a loader.

The loop gets the loader's own iterator, so its class and attributes stay available. A `StepTimer`
times each call of next().
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from operator import attrgetter
from time import perf_counter_ns
from typing import Any

from torch.utils.data import get_worker_info

from keepfed.measure.hook import (
    FetchMeter,
    Listener,
    ProcessFigures,
    StackListener,
    get_listeners,
    has_listeners,
    listen,
)
from keepfed.measure.stacks import StackSampler
from keepfed.measure.watch.timing.failsafe import give_up, has_failed
from keepfed.measure.watch.timing.ring_file import LINES, is_watched, records_folder
from keepfed.measure.watch.timing.step_timer import StepTimer
from keepfed.measure.watch.timing.writer import Writer, get_writer


def watch_iterator(loader: Any, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)`, the iterator of a `DataLoader`, and watch it outside of workers."""
    try:
        timer = None if has_failed() or get_worker_info() is not None else _timer_of(loader)
    except Exception as error:
        give_up(error)
        timer = None
    if timer is None:
        return make(loader)
    stacks = _stacks()
    if stacks is not None:
        stacks.stop()  # because a process with threads should not fork
    iterator: Any = make(loader) if timer.meter is None else _attach_meter(loader, timer, make)
    if stacks is not None and threading.current_thread() is threading.main_thread():
        stacks.start()
    try:
        iterator._step_timer = timer
    except Exception as error:  # its class has slots
        timer.stop_watching(error)
        return _time_batches(iterator, timer)
    return iterator  # type: ignore[no-any-return]


@cache
def _stacks() -> StackSampler | None:
    """Return the sampler of this process, or None without `keepfed watch --lines`."""
    if LINES not in os.environ:
        return None
    sampler = StackSampler(records_folder(), "main", int(os.environ[LINES]))
    atexit.register(sampler.stop)
    return sampler


def _timer_of(loader: Any) -> StepTimer | None:
    """Return the timer for a loop over a `DataLoader`, or None after too many loaders."""
    writer = get_writer(loader)
    if writer is None:
        return None
    recorded = has_listeners(loader)  # a trace or `diagnose` already meters this loader
    metered = not recorded and _workers_can_import(writer)
    meter = _meter_of(loader) if metered else None
    return StepTimer(writer, meter, perf_counter_ns())


def _workers_can_import(writer: Writer) -> bool:
    """Return whether workers can import keepfed: the program may have changed PYTHONPATH."""
    forked = not writer.about["workers"] or writer.about["start_method"] == "fork"
    known = str(records_folder()) in os.environ.get("PYTHONPATH", "")
    return forked or known or not is_watched()


def _attach_meter(
    loader: Any, timer: StepTimer, make: Callable[[Any], Iterator[Any]]
) -> Iterator[Any]:
    """Return `make(loader)` with the meter attached, and let errors of `make` pass."""
    called = False

    def make_once(loader: Any) -> Iterator[Any]:
        nonlocal called
        called = True
        return make(loader)

    assert timer.meter is not None
    listeners: list[Listener] = [timer.meter]
    if _stacks() is not None:
        sampler = StackSampler(records_folder(), timer.writer.name, int(os.environ[LINES]))
        listeners.insert(0, StackListener(sampler))
    try:
        return listen(loader, listeners, make_once)
    except Exception as error:
        if called:
            raise
        timer.stop_watching(error)
    return make(loader)


def watch_batches(batches: Any) -> Iterator[Any]:
    """Yield `batches` from an iterable that is not a `DataLoader`, and watch the loop."""
    timer = None
    try:
        if not has_failed() and (writer := get_writer(batches)) is not None:
            timer = StepTimer(writer, None, perf_counter_ns())
    except Exception as error:
        give_up(error)
    yield from batches if timer is None else _time_batches(iter(batches), timer)


def watch_loader(around: Any, loader: Any) -> Iterator[Any]:
    """Yield the batches of `around`, and watch its `DataLoader`.

    Args:
        around: The `DataLoader`, or a wrapper around it.
        loader: The `DataLoader`.
    """
    watched = list[Any]()

    def get_iterator(make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        iterator: Any = watch_iterator(loader, make)
        timer = getattr(iterator, "_step_timer", None)
        if timer is None:
            return iterator  # type: ignore[no-any-return]
        watched.append(iterator)
        if not hasattr(iterator, "timed"):  # an earlier, unfinished loop may have set it
            try:
                iterator.__class__ = _timed_class(type(iterator))
            except Exception as error:
                timer.stop_watching(error)
                return _time_batches(iterator, timer)
        return iterator  # type: ignore[no-any-return]

    # With persistent workers, torch reuses the iterator and does not call `_get_iterator` again.
    if loader._iterator is not None:
        get_iterator(attrgetter("_iterator"))
    vars(loader)["_get_iterator"] = partial(get_iterator, type(loader)._get_iterator)
    try:
        yield from around
    finally:
        vars(loader).pop("_get_iterator", None)
        for iterator in watched:
            iterator._step_timer.end()
            if hasattr(iterator, "timed"):
                iterator.__class__ = type(iterator).__base__


def _timed_class(kind: Any) -> type:
    """Return a subclass of the iterator class `kind` with a timed next()."""
    next_batch = kind.__next__

    def timed(iterator: Any) -> Any:
        return iterator._step_timer.time_next(iterator, next_batch)

    return type(kind.__name__, (kind,), {"__next__": timed, "timed": True})


class _WatchMeter(FetchMeter):
    """A meter whose error ends the watching, and not the program."""

    def failed(self, error: Exception) -> None:
        """Stop watching."""
        try:
            super().failed(error)
        except Exception:
            give_up(error)


def _meter_of(loader: Any) -> FetchMeter:
    """Return the meter of persistent workers that already run, or a new one."""
    running = (one for one in get_listeners(loader) if isinstance(one, _WatchMeter))
    meter = next(running, None) or _WatchMeter(
        ProcessFigures(memory=False), spans=False, persistent=loader.persistent_workers
    )
    meter.on[0] = True
    return meter


def _time_batches(iterator: Iterator[Any], timer: StepTimer) -> Iterator[Any]:
    while True:
        try:
            batch = timer.time_next(iterator, next)
        except StopIteration:
            return
        yield batch
