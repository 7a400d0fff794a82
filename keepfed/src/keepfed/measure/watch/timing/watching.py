"""Watch the loops over a loader: a `StepTimer` times each call of next()."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from operator import attrgetter
from time import perf_counter_ns
from typing import Any

from keepfed.measure.hook import (
    FetchMeter,
    Listener,
    ProcessFigures,
    StackListener,
    get_listeners,
    has_listeners,
    replace_next,
    restore_next,
)
from keepfed.measure.stacks import StackSampler
from keepfed.measure.watch.timing.failsafe import give_up, has_failed
from keepfed.measure.watch.timing.observer import Timed, observe, time_batches
from keepfed.measure.watch.timing.ring_file import LINES, is_watched, records_folder
from keepfed.measure.watch.timing.step_timer import StepTimer
from keepfed.measure.watch.timing.writer import Writer, get_writer


def watch_iterator(loader: Any, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)`, the iterator of a `DataLoader`, and watch it outside of workers."""
    iterator = observe(loader, make, _timed)
    stacks = None if getattr(iterator, "_step_timer", None) is None else _stacks()
    if stacks is not None and threading.current_thread() is threading.main_thread():
        stacks.start()
    return iterator


@cache
def _stacks() -> StackSampler | None:
    """Return the sampler of this process, or None without `keepfed watch --lines`."""
    if LINES not in os.environ:
        return None
    sampler = StackSampler(records_folder(), "main", int(os.environ[LINES]))
    atexit.register(sampler.stop)
    return sampler


def _timed(loader: Any) -> Timed:
    """Return the timer of a loop over a `DataLoader`, or None after too many, and its listeners."""
    writer = get_writer(loader)
    if writer is None:
        return None, ()
    listeners = list[Listener]()
    # A trace or `diagnose` already meters a loader with listeners.
    metered = not has_listeners(loader) and _workers_can_import(writer)
    meter = _meter_of(loader) if metered else None
    if meter is not None:
        listeners.append(meter)
    if (stacks := _stacks()) is not None:
        stacks.stop()  # because a process with threads should not fork
        if meter is not None:
            sampler = StackSampler(records_folder(), writer.name, int(os.environ[LINES]))
            listeners.insert(0, StackListener(sampler))
    return StepTimer(writer, meter, perf_counter_ns()), listeners


def _workers_can_import(writer: Writer) -> bool:
    """Return whether workers can import keepfed: the program may have changed PYTHONPATH."""
    forked = not writer.about["workers"] or writer.about["start_method"] == "fork"
    known = str(records_folder()) in os.environ.get("PYTHONPATH", "")
    return forked or known or not is_watched()


def watch_batches(batches: Any) -> Iterator[Any]:
    """Yield `batches` from an iterable that is not a `DataLoader`, and watch the loop."""
    timer = None
    try:
        if not has_failed() and (writer := get_writer(batches)) is not None:
            timer = StepTimer(writer, None, perf_counter_ns())
    except Exception as error:
        give_up(error)
    yield from batches if timer is None else time_batches(iter(batches), timer)


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
        try:
            replace_next(iterator, _time_next)
        except Exception as error:
            timer.stop_watching(error)
            return time_batches(iterator, timer)
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
            restore_next(iterator, _time_next)


def _time_next(iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
    return iterator._step_timer.time_next(iterator, next_batch)


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
