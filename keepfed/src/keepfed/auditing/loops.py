"""Audit every loop over a `DataLoader` in this process."""

from __future__ import annotations

import atexit
import json
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from gc import get_referrers
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import Subset, get_worker_info

from keepfed.auditing.record import Account, Audited, BatchReport, EpochRecord, describe
from keepfed.files import replace_file
from keepfed.measure.hook import has_listeners, without_report
from keepfed.measure.watch.timing.failsafe import give_up, has_failed
from keepfed.measure.watch.timing.ring_file import records_folder
from keepfed.measure.watch.timing.writer import call_sites

LOG = "KEEPFED_AUDIT_LOG"  # environment variable with the file that lists every batch
ENDING = ".audit"
PAUSE = 50  # minimum time between two writes of the record, in durations of the last one

_lock = threading.Lock()


@dataclass
class _Known:
    """A record, with the loader and the dataset that it belongs to."""

    audited: Audited
    loader: weakref.ref[Any]
    base: Callable[[], Any]  # the dataset below all subsets, or None if it no longer exists


class _Process:
    """State of the audit in this process."""

    def __init__(self) -> None:
        self.known = list[_Known]()
        self.logged = dict[str, int]()  # batches in the log, by the name of their loader
        self.stepped = False  # whether an optimizer has made a step since `count_steps`
        self.steps = 0
        self.next_write = 0.0

    def count_steps(self) -> int:
        """Return a number that has changed if an optimizer made a step since the last call."""
        self.steps += self.stepped
        self.stepped = False
        return self.steps


_process = _Process()


@cache
def _follow_optimizers() -> None:
    def step_made(*_: Any) -> None:
        _process.stepped = True  # only written, so that a compiled step is not compiled again

    register_optimizer_step_post_hook(step_made)


def watch_iterator(loader: Any, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)`, and audit the epoch that begins."""
    if has_failed() or get_worker_info() is not None or has_listeners(loader):
        return make(loader)
    called = False

    def make_once(loader: Any) -> Iterator[Any]:
        nonlocal called
        called = True
        return make(loader)

    try:
        _follow_optimizers()
        audited = _audited_of(loader, call_sites(sys._getframe(1))[0])
        account = LoopAccount(audited, loader, log=_log if LOG in os.environ else None)
        iterator: Any = account.begin(loader, make_once)
    except Exception as error:
        if called:  # an error of the program
            raise
        give_up(error)
        return make(loader)
    iterator._step_timer = account
    return iterator  # type: ignore[no-any-return]


def _audited_of(loader: Any, place: str) -> Audited:
    """Return the record of a loader in a loop at `place`.

    A loader continues the record of an equal one that no longer exists, because many programs
    create a loader for each epoch.
    """
    dataset = loader.dataset
    new = describe(loader, f"{type(dataset).__name__} at {place}")
    for known in _process.known:
        old = known.audited
        if old.loop == new.loop and known.loader() is loader:
            return old
        if known.loader() is None and known.base() is not None and _are_equal(old, new):
            known.loader = weakref.ref(loader)
            return old
    alike = sum(known.audited.loop == new.loop for known in _process.known)
    if alike:
        new.name = f"{type(dataset).__name__} ({alike + 1}) at {place}"
    same = (known.audited.loader for known in _process.known if known.loader() is loader)
    new.loader = next(same, len(_process.known))
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    try:
        base: Callable[[], Any] = weakref.ref(dataset)
    except TypeError:  # some datasets, such as a list, have no weak references
        base = lambda: True  # noqa: E731
    _process.known.append(_Known(new, weakref.ref(loader), base))
    return new


def _are_equal(old: Audited, new: Audited) -> bool:
    keys = "loop", "base", "workers", "batch_size", "drop_last", "draws_again", "total"
    return all(getattr(old, key) == getattr(new, key) for key in keys) and np.array_equal(
        old.subset, new.subset
    )


class LoopAccount(Account):
    """Account of an iterator in a program. It has the place of a `StepTimer`."""

    steps = 0  # steps of the optimizers when the loop received its last batch

    def time_next(self, iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
        """Return `next_batch(iterator)` as the loop would get it, and add the batch."""
        if has_failed():
            return without_report(next_batch(iterator))
        if iterator._num_yielded == 0 and self.epoch.batches:  # persistent workers begin again
            self.start_epoch()
        stepped = self.epoch.batches > 0 and self.steps != _process.count_steps()
        try:
            received = next_batch(iterator)
        except StopIteration:
            self.epoch.complete = True
            self.epoch.stepped |= stepped
            # the first epoch only, because looking for references takes time
            if self.epoch.number == 0:
                self.epoch.cycled = any(isinstance(r, cycle) for r in get_referrers(iterator))
            _write_sometimes()
            raise
        try:
            if not self.is_full():  # if it is, the steps may be those of a loop in between
                self.epoch.stepped |= stepped
            return self.take(received)
        except Exception as error:
            give_up(error)
            return without_report(received)
        finally:
            self.steps = _process.count_steps()


def _log(audited: Audited, epoch: EpochRecord, report: BatchReport) -> None:
    """Append a line for the batch that was added last, in one write."""
    step = _process.logged.get(audited.name, -1) + 1
    _process.logged[audited.name] = step
    row = {
        "loader": audited.name,
        "rank": audited.rank,
        "step": step,
        "epoch": epoch.number,
        "batch": epoch.batches - 1,
        "worker": report.worker,
        "samples": report.prints if report.indices is None else report.indices,
    }
    with _lock, open(os.environ[LOG], "ab", buffering=0) as file:
        file.write(f"{json.dumps(row)}\n".encode())


def _write_sometimes() -> None:
    """Write the records, in case the program is killed, but spend at most 2 % of the time on it."""
    begun = perf_counter()
    if begun > _process.next_write:
        _write(os.getpid())
        _process.next_write = perf_counter() + PAUSE * (perf_counter() - begun)


def _write(pid: int) -> None:
    """Write the records of this process, unless it is a forked child."""
    if os.getpid() != pid or not _process.known:
        return
    try:
        records = [known.audited for known in _process.known]
        replace_file(Path(records_folder(), f"{pid}{ENDING}"), pickle.dumps(records))
    except Exception as error:
        give_up(error)


atexit.register(_write, os.getpid())
