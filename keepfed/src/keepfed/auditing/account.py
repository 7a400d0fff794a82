"""Describe a loader, and add the batches that a loop takes to its record."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)

from keepfed.auditing import record
from keepfed.auditing.listener import AuditListener, arrays_in, some_of
from keepfed.auditing.record import BatchReport, EpochRecord, LoaderRecord
from keepfed.auditing.worker_state import epoch_numbers
from keepfed.batches import leaves
from keepfed.limits import get_rank, known
from keepfed.measure.hook import detach_report
from keepfed.measure.throughput import length

MAX_COMPARED = 64  # first batches of an iterator that are compared before and after `next()`


def sampler_of(loader: DataLoader[Any]) -> Any:
    """Return what orders the samples, also below a batch sampler, such as that of Accelerate."""
    batches: Any = loader.batch_sampler
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    return getattr(batches, "sampler", loader.sampler)


_bases = list[Callable[[], Any]]()  # weak references to the datasets below all subsets


def _number_of(dataset: Any) -> int:
    """Return a number for a dataset that no other one gets, even at the same address."""
    for number, reference in enumerate(_bases):
        if reference() is dataset:
            return number
    try:
        _bases.append(weakref.ref(dataset))
    except TypeError:  # some datasets, such as a list, have no weak references
        _bases.append(lambda: None)
    return len(_bases) - 1


def describe(loader: DataLoader[Any], name: str) -> LoaderRecord:
    """Describe a loader without using it."""
    sampler, base, indices = sampler_of(loader), loader.dataset, None
    while isinstance(base, Subset):
        inner = np.asarray(base.indices)
        indices, base = inner if indices is None else inner[indices], base.dataset
    batches: Any = loader if loader.batch_size else loader.batch_sampler
    drops = getattr(batches, "drop_last", False)
    rank, ranks = known(get_rank) or (0, 1)
    groups = getattr(getattr(distributed, "distributed_c10d", None), "_world", None)
    return LoaderRecord(
        name=name,
        loop=name,
        rank=rank,
        ranks=ranks,
        groups=len(getattr(groups, "pg_map", ())),
        workers=loader.num_workers,
        spare=(getattr(batches, "batch_size", None) or 1) - 1 if drops else 0,
        total=None if isinstance(loader.dataset, IterableDataset) else length(loader.dataset),
        draws_again=isinstance(sampler, WeightedRandomSampler)
        or (isinstance(sampler, RandomSampler) and sampler.replacement),
        base=(os.getpid(), _number_of(base)),
        subset=indices,
    )


class Account:
    """Adds the batches of an iterator to the record of its loader."""

    def __init__(self, loaded: LoaderRecord, loader: DataLoader[Any]):
        """Create an account, which keeps no strong reference to the loader."""
        self.loaded, self._loader = loaded, weakref.ref(loader)
        self.listener, self._dataset = AuditListener(), loader.dataset
        self._served = list[weakref.ref[Any]]()  # arrays of the last batch
        self._asked = list[tuple[weakref.ref[Any], list[bytes]]]()  # with values before `next()`
        self._compared = 0
        self._batches: int | None = None  # batches of an epoch, None if unknown
        self.epoch: EpochRecord

    def start_epoch(self) -> None:
        """Start to record the next epoch."""
        epochs, loader, is_stream = self.loaded.epochs, self._loader(), self.loaded.total is None
        # Contents tell whether two loaders share samples, so one epoch of them is enough.
        self.listener.contents = is_stream or not any(epoch.complete for epoch in epochs)
        self.epoch = EpochRecord(len(epochs), torch.is_grad_enabled(), epoch_numbers(self._dataset))
        epochs.append(self.epoch)
        if loader is None:
            return
        owners = [sampler_of(loader), loader.batch_sampler, *[self._dataset] * is_stream]
        orders = (owner.epoch for owner in owners if _orders_by_epoch(owner))
        self.epoch.order_epoch = next(orders, None)
        if not is_stream and type(loader.batch_sampler) in (BatchSampler, type(None)):
            self.epoch.expected, self._batches = length(owners[0]), length(loader)
        elif type(loader).__len__ is not DataLoader.__len__:
            # The length of a batch sampler of the program may draw random numbers.
            self._batches = length(loader)

    def is_full(self) -> bool:
        """Return whether the running epoch has all batches that `len(loader)` promises."""
        return self.epoch.batches > 0 and self.epoch.batches == self._batches

    def ask(self) -> None:
        """Note the values of the last batch before the loader builds the next one.

        A loop may change its batch during a step. So only what `next()` changes counts, and only in
        the main thread, because a thread that prefetches runs during the step.
        """
        is_main = threading.current_thread() is threading.main_thread()
        is_compared = is_main and self._compared < MAX_COMPARED
        self._compared += is_compared
        self._asked = [(part, _values(part)) for part in self._served if is_compared]

    def take(self, received: Any) -> tuple[Any, BatchReport | None]:
        """Add a batch, and return it as the loop would get it without an audit, and its report.

        An iterator that continues after the last batch of an epoch begins another one. Some loaders
        make a single iterator without an end for all epochs.
        """
        changed = (before != _values(part) for part, before in self._asked if part() is not None)
        self.epoch.changed += any(changed)
        batch, report = detach_report(received)
        if self.loaded.workers == 0:
            report, self.listener.report = self.listener.report, None
        if self.is_full():
            self.epoch.complete = True
            self.start_epoch()
        self.epoch.batches += 1
        if self._compared < MAX_COMPARED:
            parts = (part for part in leaves(batch) if isinstance(part, torch.Tensor | np.ndarray))
            self._served = [weakref.ref(part) for part in parts]
        if report is not None and self.loaded.recorded < record.MAX_SAMPLES:
            self.epoch.reports.append(report)
            self.loaded.recorded += report.size + record.BATCH
        return batch, report


def _values(part: weakref.ref[Any]) -> list[bytes]:
    return [*map(some_of, arrays_in([part()]))]


def _orders_by_epoch(owner: Any) -> bool:
    """Return whether a sampler or stream orders its samples by an epoch number that it gets."""
    known = type(getattr(owner, "epoch", None)) is int and getattr(owner, "shuffle", True)
    return bool(known and callable(getattr(owner, "set_epoch", None)))
