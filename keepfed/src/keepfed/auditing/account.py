"""Add the batches of an iterator to a record while the loop takes them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from keepfed.auditing import record
from keepfed.auditing.listener import AuditListener, arrays_in, some_of
from keepfed.auditing.record import BatchReport, EpochRecord, LoaderRecord
from keepfed.auditing.worker_state import epoch_numbers
from keepfed.batches import leaves
from keepfed.measure.hook import detach_report
from keepfed.measure.throughput import length

MAX_COMPARED = 64  # first batches of an iterator that are compared before and after `next()`


class Account:
    """Adds the batches of an iterator to the record of its loader."""

    def __init__(self, loaded: LoaderRecord, loader: DataLoader[Any], training: bool | None = None):
        """Create an account, which keeps no strong reference to the loader.

        `training` tells whether this is training. By default, it is if gradients are enabled.
        """
        self.loaded, self._loader, self._training = loaded, weakref.ref(loader), training
        self.listener, self._dataset = AuditListener(), loader.dataset
        self._served = list[weakref.ref[Any]]()  # arrays of the last batch
        self._compared = 0
        self._batches: int | None = None  # batches of an epoch, None if unknown
        self.epoch: EpochRecord

    def start_epoch(self) -> None:
        """Start to record the next epoch."""
        epochs, loader, is_stream = self.loaded.epochs, self._loader(), self.loaded.total is None
        # Contents tell whether two loaders share samples, so one epoch of them is enough.
        self.listener.contents = is_stream or not any(epoch.complete for epoch in epochs)
        training = torch.is_grad_enabled() if self._training is None else self._training
        self.epoch = EpochRecord(len(epochs), training, epoch_numbers(self._dataset))
        epochs.append(self.epoch)
        if loader is None:
            return
        owners = [record.sampler_of(loader), loader.batch_sampler, *[self._dataset] * is_stream]
        numbers = (owner.epoch for owner in owners if _orders_by_epoch(owner))
        self.epoch.order_epoch = next(numbers, None)
        if record.is_plain(loader):
            self.epoch.expected, self._batches = length(owners[0]), length(loader)
        elif type(loader).__len__ is not DataLoader.__len__:
            # The length of a batch sampler of the program may draw random numbers.
            self._batches = length(loader)

    def is_full(self) -> bool:
        """Return whether the running epoch has all batches that `len(loader)` promises."""
        return self.epoch.batches > 0 and self.epoch.batches == self._batches

    def receive(self, next_batch: Callable[[Any], Any], batches: Any) -> Any:
        """Return `next_batch(batches)`, which may bring a report along.

        A loop may change its batch during a step. So only what `next()` changes counts, and only in
        the main thread, because a thread that prefetches runs during the step.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if self._compared >= MAX_COMPARED or not is_main:
            return next_batch(batches)
        self._compared += 1
        parts = [part for reference in self._served if (part := reference()) is not None]
        before = [*map(some_of, arrays_in(parts))]
        received = next_batch(batches)
        self.epoch.changed += before != [*map(some_of, arrays_in(parts))]
        return received

    def take(self, received: Any) -> tuple[Any, BatchReport | None]:
        """Add a batch, and return it as the loop would get it without an audit, and its report.

        An iterator that continues after the last batch of an epoch begins another one. Some loaders
        make a single iterator without an end for all epochs.
        """
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


def _orders_by_epoch(owner: Any) -> bool:
    """Return whether a sampler or stream orders its samples by an epoch number that it gets."""
    known = type(getattr(owner, "epoch", None)) is int and getattr(owner, "shuffle", True)
    return bool(known and callable(getattr(owner, "set_epoch", None)))
