"""Audit every loop over a `DataLoader` in this process."""

from __future__ import annotations

import json
import os
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from gc import get_referrers
from itertools import cycle
from multiprocessing.util import Finalize
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from keepfed.auditing.account import Account, describe
from keepfed.auditing.record import BatchReport, LoaderRecord
from keepfed.files import replace_file
from keepfed.measure.hook import has_listeners, without_report
from keepfed.measure.watch.timing.failsafe import give_up, has_failed
from keepfed.measure.watch.timing.observer import Timed, observe
from keepfed.measure.watch.timing.ring_file import records_folder
from keepfed.measure.watch.timing.writer import call_sites

LOG = "KEEPFED_AUDIT_LOG"  # environment variable with the file that lists every batch
ENDING = ".audit"
PAUSE_S = 30  # between two writes of the record, of which the last is at the end of the process
_PID = os.getpid()  # a forked child writes no record


class _Process:
    """State of the audit in this process."""

    def __init__(self) -> None:
        self.loaders = list[tuple[weakref.ref[Any], LoaderRecord]]()
        self.stepped = False  # whether an optimizer has made a step since `count_steps`
        self.steps = 0
        self.written_s = perf_counter()

    def count_steps(self) -> int:
        """Return a number that has changed if an optimizer made a step since the last call."""
        self.steps += self.stepped
        self.stepped = False
        return self.steps

    def record_of(self, loader: Any, place: str) -> LoaderRecord:
        """Return the record of a loader in a loop at `place`.

        Many programs create a loader for each epoch. It continues the record of the one before.
        """
        kind = type(loader.dataset).__name__
        new = describe(loader, f"{kind} at {place}")
        new.loader = len(self.loaders)
        for number, (reference, old) in enumerate(self.loaders):
            same = reference() is loader
            if (same and old.loop == new.loop) or (reference() is None and old.is_like(new)):
                self.loaders[number] = weakref.ref(loader), old
                return old
            if same:
                new.loader = old.loader
        if alike := sum(old.loop == new.loop for _, old in self.loaders):
            new.name = f"{kind} ({alike + 1}) at {place}"
        self.loaders.append((weakref.ref(loader), new))
        return new


_process = _Process()


def _step_made(*_: Any) -> None:
    _process.stepped = True  # only written, so that a compiled step is not compiled again


register_optimizer_step_post_hook(_step_made)


def watch_iterator(loader: Any, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)`, and audit the epoch that begins."""
    return observe(loader, make, _accounted)


def _accounted(loader: Any) -> Timed:
    """Return the account of a loop over a `DataLoader`, and its listener."""
    if has_listeners(loader):
        return None, ()
    frame = sys._getframe(1)
    at, inner = call_sites(frame)
    place = at if inner == at else f"{at}, in {inner}"  # a library may loop in several lines
    account = LoopAccount(_process.record_of(loader, place), loader)
    account.may_be_held = _uses_holder(frame)
    account.start_epoch()
    return account, [account.listener]


def _uses_holder(frame: FrameType | None) -> bool:
    """Return whether a function that calls this one uses the word `cycle` or `zip`."""
    while frame is not None and {"cycle", "zip"}.isdisjoint(frame.f_code.co_names):
        frame = frame.f_back
    return frame is not None


def _holder_of(iterator: Any) -> str:
    """Return "cycle" or "zip" if one of them takes the batches of an iterator."""
    parts = get_referrers(iterator)
    parts += get_referrers(*(part for part in parts if type(part) is tuple))  # a zip has one
    name = next((type(part).__name__ for part in parts if isinstance(part, cycle | zip)), "")
    parts.clear()  # they refer to this frame, and would keep the iterator
    return name


class LoopAccount(Account):
    """Account of an iterator in a program. It has the place of a `StepTimer`."""

    steps = 0  # steps of the optimizers when the loop received its last batch
    stepped = False  # whether one made a step since then
    may_be_held = False  # whether a `cycle` or `zip` may take the batches

    def time_next(self, iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
        """Return `next_batch(iterator)` as the loop would get it, and add the batch."""
        try:
            if not has_failed():
                self._ask(iterator)
        except Exception as error:
            give_up(error)
        if has_failed():
            return without_report(next_batch(iterator))
        try:
            received = next_batch(iterator)
        except StopIteration:
            self.epoch.complete = True
            self.epoch.stepped |= self.stepped
            _write(PAUSE_S)
            raise
        try:
            if not self.is_full():  # if it is, the steps may be those of a loop in between
                self.epoch.stepped |= self.stepped
            batch, report = self.take(received)
            if LOG in os.environ and report is not None:
                self._log(report)
            return batch
        except Exception as error:
            give_up(error)
            return without_report(received)
        finally:
            self.steps = _process.count_steps()

    def _ask(self, iterator: Any) -> None:
        if self.epoch.batches and getattr(iterator, "_num_yielded", None) == 0:
            self.start_epoch()  # persistent workers begin again
        self.stepped = self.epoch.batches > 0 and self.steps != _process.count_steps()
        if self.may_be_held and self.epoch.batches == 0:  # looking for references takes time
            self.epoch.held_by = _holder_of(iterator)
        self.ask()

    def _log(self, report: BatchReport) -> None:
        """Append a line for the batch that was added last, in one write."""
        record, epoch = self.loaded, self.epoch
        step = sum(epoch.batches for epoch in record.epochs) - 1
        row = {"loader": record.name, "rank": record.rank, "step": step, "epoch": epoch.number}
        row |= {"batch": epoch.batches - 1, "worker": report.worker, "samples": report.ids.tolist()}
        with open(os.environ[LOG], "ab", buffering=0) as file:
            file.write(f"{json.dumps(row)}\n".encode())


def _write(pause_s: float = 0) -> None:
    """Write the records of this process, unless it did so less than `pause_s` ago."""
    too_early = perf_counter() < _process.written_s + pause_s
    if os.getpid() != _PID or not _process.loaders or too_early:
        return
    _process.written_s = perf_counter()
    try:
        records = [record for _, record in _process.loaders]
        replace_file(Path(records_folder(), f"{_PID}{ENDING}"), pickle.dumps(records))
    except Exception as error:
        give_up(error)


Finalize(None, _write, exitpriority=0)  # a process of multiprocessing does not call atexit
