"""Audit every loop over a `DataLoader` in this process."""

from __future__ import annotations

import atexit
import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from gc import get_referrers
from itertools import cycle
from pathlib import Path
from typing import Any

from torch.utils.data import get_worker_info

from keepfed.auditing.record import Account, Audited, EpochRecord, describe
from keepfed.files import replace_file
from keepfed.measure.hook import has_listeners, without_report
from keepfed.measure.watch.timing.failsafe import give_up
from keepfed.measure.watch.timing.ring_file import records_folder
from keepfed.measure.watch.timing.writer import call_sites

LOG = "KEEPFED_AUDIT_LOG"  # environment variable with the file that lists every batch
ENDING = ".audit"
CHEAP_SAMPLES = 1_000_000  # samples above which the record is written only at the end

_loaders: dict[tuple[Any, ...], Audited] = {}
_steps: dict[str, int] = {}  # batches so far, by the name of their loader
_lock = threading.Lock()


def audit_iterator(loader: Any, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)`, and audit the epoch that begins."""
    if get_worker_info() is not None or has_listeners(loader):
        return make(loader)
    called = False

    def make_once(loader: Any) -> Iterator[Any]:
        nonlocal called
        called = True
        return make(loader)

    try:
        account = _account(loader)
        iterator: Any = account.begin(loader, make_once)
    except Exception as error:
        if called:  # an error of the program
            raise
        give_up(error)
        return make(loader)
    iterator._account, iterator._audited_loader = account, loader
    return iterator  # type: ignore[no-any-return]


def _account(loader: Any) -> Account:
    """Return an account for a new epoch of a loader, which its place and dataset identify."""
    place = call_sites(sys._getframe(2))[0]
    key = place, type(loader.dataset).__name__, id(loader.dataset), loader.batch_size
    if key not in _loaders:
        alike = sum(known[:2] == key[:2] for known in _loaders)
        number = f" ({alike + 1})" if alike else ""
        _loaders[key] = describe(loader, f"{key[1]}{number} at {place}")
    return Account(_loaders[key], loader, _log if LOG in os.environ else None)


def next_audited(iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
    """Return `next_batch(iterator)` as the loop would get it, and add the batch to the account."""
    account = iterator._account
    if iterator._num_yielded == 0 and account.epoch.sizes:  # persistent workers begin again
        account.end(complete=account.epoch.complete)
        again = Account(account.audited, iterator._audited_loader, account.log)
        again.listener = account.listener  # the one that the iterator knows
        iterator._account = account = again
    try:
        received = next_batch(iterator)
    except StopIteration:
        account.end(complete=True)
        # the first epoch only, because looking for references takes time
        if account.epoch.number == 0:
            account.epoch.cycled = any(isinstance(r, cycle) for r in get_referrers(iterator))
        if sum(len(e.prints) for a in _loaders.values() for e in a.epochs) < CHEAP_SAMPLES:
            _write(os.getpid())  # in case the program is killed
        raise
    try:
        return account.take(received)
    except Exception as error:
        give_up(error)
        return without_report(received)


def _log(audited: Audited, epoch: EpochRecord, report: tuple[Any, ...]) -> None:
    """Append a line for the batch that was added last, in one write."""
    worker, indices, prints, *_ = report
    step = _steps[audited.name] = _steps.get(audited.name, -1) + 1
    row = {
        "loader": audited.name,
        "rank": audited.rank,
        "step": step,
        "epoch": epoch.number,
        "batch": len(epoch.sizes) - 1,
        "worker": worker,
        "samples": indices if indices is not None else [f"{one:016x}" for one in prints],
    }
    with _lock, open(os.environ[LOG], "ab", buffering=0) as file:
        file.write(f"{json.dumps(row)}\n".encode())


def _write(pid: int) -> None:
    """Write the records of this process, unless it is a forked child."""
    if os.getpid() != pid or not _loaders:
        return
    try:
        for audited in _loaders.values():
            for epoch in audited.epochs:
                epoch.pack()
        path = Path(records_folder(), f"{pid}{ENDING}")
        replace_file(path, pickle.dumps([*_loaders.values()]))
    except Exception as error:
        give_up(error)


atexit.register(_write, os.getpid())
