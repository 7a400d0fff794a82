"""Add the batches of an iterator to a record while the loop takes them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler

from keepfed.auditing import record
from keepfed.auditing.listener import AuditListener
from keepfed.auditing.record import BatchReport, EpochRecord, LoaderRecord
from keepfed.auditing.samples import MAX_VALUES, arrays_in, parts_of
from keepfed.auditing.worker_state import epoch_numbers
from keepfed.measure.hook import detach_report
from keepfed.measure.throughput import length


class Account:
    """Adds the batches of an iterator to the record of its loader."""

    def __init__(self, loaded: LoaderRecord, loader: DataLoader[Any], training: bool | None = None):
        """Create an account, which keeps no strong reference to the loader.

        `training` tells whether this is training. By default, it is if gradients are enabled.
        """
        self.loaded, self._loader, self._training = loaded, weakref.ref(loader), training
        self.listener = AuditListener(loader.dataset, loader.num_workers)
        self._memory = ServedMemory()
        self._batches: int | None = None  # batches of an epoch, None if unknown
        self.epoch: EpochRecord

    def is_alone(self) -> bool:
        """Return whether no other loader has data of its own, with which to compare contents."""
        return False

    def start_epoch(self) -> None:
        """Start to record the next epoch."""
        epochs, dataset = self.loaded.epochs, self.listener.dataset
        # Contents tell whether two loaders share samples, so one epoch of them is enough. In the
        # main process they take time of the training.
        known = any(epoch.complete and epoch.has_prints for epoch in epochs)
        is_stream, waits = self.loaded.total is None, self.loaded.workers == 0 and self.is_alone()
        self.listener.contents = is_stream or not (known or waits)
        training = torch.is_grad_enabled() if self._training is None else self._training
        self.epoch = EpochRecord(len(epochs), training, epoch_numbers(dataset))
        epochs.append(self.epoch)
        if (loader := self._loader()) is None:
            return
        sampler, batches = loader.sampler, loader.batch_sampler
        owners = [sampler, batches, getattr(batches, "sampler", None), *[dataset] * is_stream]
        numbers = (owner.epoch for owner in owners if _orders_by_epoch(owner))
        self.epoch.order_epoch = next(numbers, None)
        if is_stream:
            return
        self.epoch.shuffled = type(sampler) is RandomSampler
        # The length of a batch sampler of the program may draw random numbers.
        if loader.batch_size or batches is None:
            self.epoch.expected, self._batches = length(sampler), length(loader)
        elif type(loader).__len__ is not DataLoader.__len__:
            self._batches = length(loader)

    def is_full(self) -> bool:
        """Return whether the running epoch has all batches that `len(loader)` promises."""
        return self.epoch.batches > 0 and self.epoch.batches == self._batches

    def receive(self, next_batch: Callable[[Any], Any], batches: Any) -> Any:
        """Return `next_batch(batches)`, which may bring a report along."""
        self._memory.before_next()
        return next_batch(batches)

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
        self.epoch.changed += self._memory.has_changed(batch)
        if report is not None and self.loaded.recorded < record.MAX_SAMPLES:
            self.epoch.reports.append(report)
            self.loaded.recorded += report.size + record.BATCH
        return batch, report


def _orders_by_epoch(owner: Any) -> bool:
    """Return whether a sampler or stream orders its samples by an epoch number that it gets."""
    known = type(getattr(owner, "epoch", None)) is int and getattr(owner, "shuffle", True)
    return bool(known and callable(getattr(owner, "set_epoch", None)))


class ServedMemory:
    """Compares a batch before and after the next one is made.

    A loop may change its batch during a step. So only what `next()` changes counts, and only in the
    main thread, because a thread that prefetches runs during the step.
    """

    def __init__(self) -> None:
        self._served = dict[int, weakref.ref[Any]]()  # arrays of the last batch by their address
        self._is_shared = False  # whether a batch had the address of one that the loop still has
        self._copies = list[tuple[Any, bytes]]()  # arrays of the last batch, and what they had

    def before_next(self) -> None:
        """Copy a part of the last batch, if its memory was used again before."""
        if self._is_shared and threading.current_thread() is threading.main_thread():
            alive = (reference() for reference in self._served.values())
            self._copies = [(part, _some_of(part)) for part in alive if part is not None]

    def has_changed(self, batch: Any) -> bool:
        """Return whether `next()`, which returned `batch`, changed the batch before."""
        changed = any(_some_of(part) != before for part, before in self._copies)
        self._copies = []
        last, self._served = self._served, {}
        for part in parts_of(batch):
            if address := _address_of(part):
                self._served[address] = weakref.ref(part)
                self._is_shared |= address in last and last[address]() is not None
        return changed


def _address_of(part: Any) -> int:
    if isinstance(part, torch.Tensor):
        plain = part.layout == torch.strided and part.device.type == "cpu"
        return part.data_ptr() if plain and type(part) is torch.Tensor else 0
    return int(part.__array_interface__["data"][0]) if isinstance(part, np.ndarray) else 0


def _some_of(part: Any) -> bytes:
    arrays = [array.reshape(-1) for array in arrays_in([part])]
    return b"".join(array[:: array.size // MAX_VALUES + 1].tobytes() for array in arrays)
