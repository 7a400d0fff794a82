"""Let a timer take the batches of a loader's iterator, and never stop the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import get_worker_info

from keepfed.measure.hook import Hook, Listener
from keepfed.measure.watch.timing.failsafe import give_up, has_failed

Timed = tuple[Any, Sequence[Listener]]  # timer with a method `time_next`, or None, and listeners


def observe(
    loader: Any, make: Callable[[Any], Iterator[Any]], timed: Callable[[Any], Timed]
) -> Iterator[Any]:
    """Return `make(loader)`, the loader's own iterator, so its class and attributes are available.

    Outside of workers, the timer that `timed` returns for the loader takes the batches. Only errors
    of `make` are raised.
    """
    timer, hook = None, None
    try:
        if not has_failed() and get_worker_info() is None:
            timer, listeners = timed(loader)
            hook = Hook(loader, listeners) if listeners else None
    except Exception as error:
        give_up(error)
        return make(loader)
    iterator: Any = make(loader) if hook is None else hook.begin(loader, make)
    if timer is None:
        return iterator  # type: ignore[no-any-return]
    try:
        iterator._step_timer = timer
    except AttributeError:  # its class has slots
        return time_batches(iterator, timer)
    return iterator  # type: ignore[no-any-return]


def time_batches(iterator: Iterator[Any], timer: Any) -> Iterator[Any]:
    """Yield the batches of an iterator as its timer returns them."""
    while True:
        try:
            batch = timer.time_next(iterator, next)
        except StopIteration:
            return
        yield batch
