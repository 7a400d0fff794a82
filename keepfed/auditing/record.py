"""Record what each epoch of a loader served: a listener in the workers, an account in the loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)

from keepfed.auditing.samples import (
    Spread,
    damage,
    fingerprint,
    form,
    generator_states,
    label_of,
    spreads,
)
from keepfed.measure.hook import Listener, attach_report, detach_report, listen
from keepfed.measure.records import MAIN

UNSEEN = 0  # fingerprint of a sample whose content was not inspected
MAX_COST = 0.02  # maximum share of a worker's time for optional fingerprints
SURE_BATCHES = 32  # batches of a process that are inspected in detail at any cost
MAX_SPREADS = 10_000  # number of spreads that an epoch keeps
MAX_SAMPLES = 10_000_000  # samples of an epoch above which only one in `1 << thin` is kept


class AuditListener(Listener):
    """Describes each batch in the process that builds it, and sends the description along."""

    def __init__(self, dataset: Any = None):
        """Create a listener; `dataset` is needed in the main process only."""
        self._dataset, self.worker = dataset, MAIN
        self._index: Any = None
        self._before: tuple[int, ...] = ()
        self._thorough = True  # whether this batch is inspected in detail
        self._samples: list[int] = []
        self._labels: list[Any] = []
        self.report: tuple[Any, ...] | None = None
        self._started, self._spent = perf_counter(), 0.0
        self._batches = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_dataset": None}

    def worker_started(self, worker_id: int) -> None:
        """Remember the worker and its copy of the dataset."""
        info = get_worker_info()
        self.worker, self._dataset = worker_id, info.dataset if info else None
        self._started = perf_counter()

    def _has_time(self) -> bool:
        """Return whether the audit has used less than its share of the time so far."""
        self._batches += 1
        return self._batches <= SURE_BATCHES or self._spent < MAX_COST * (
            perf_counter() - self._started
        )

    def fetch_begins(self, index: Any) -> None:
        """Remember the indices, and the states of the dataset's random generators."""
        begun = perf_counter()
        self._thorough = self._has_time()
        self._index = _numbers(index)
        self._before = generator_states(self._dataset) if self._thorough else ()
        self._spent += perf_counter() - begun

    def samples_made(self, samples: Any) -> None:
        """Identify the samples before they are collated."""
        begun = perf_counter()
        found = samples if isinstance(samples, list) else [samples]
        if self._thorough or self._index is None:
            self._samples = [fingerprint(sample) for sample in found]
        else:  # the index identifies the sample, so its content may stay unknown
            self._samples = [UNSEEN] * len(found)
        self._labels = [label_of(sample) for sample in found]
        self._spent += perf_counter() - begun

    def batch_made(self, batch: Any) -> Any:
        """Attach the description to the batch, or keep it in the main process."""
        begun = perf_counter()
        epoch = getattr(self._dataset, "epoch", None)
        report = (
            self.worker,
            self._index,
            self._samples,
            self._labels,
            (self._before, generator_states(self._dataset) if self._thorough else ()),
            epoch if isinstance(epoch, int) else None,
            damage(batch),
            form(batch),
            spreads(batch) if self._thorough else [],
        )
        self._spent += perf_counter() - begun
        if self.worker != MAIN:
            return attach_report(batch, report)
        self.report = report
        return batch

    def failed(self, error: Exception) -> None:
        """Leave the batches of this process without a description."""


def _numbers(index: Any) -> list[int] | None:
    """Return the indices of a batch, or None if the dataset is a stream."""
    found = index if isinstance(index, list | tuple) else [index]
    found = [one.item() if hasattr(one, "item") else one for one in found]
    return found if all(isinstance(one, int) for one in found) else None


@dataclass
class EpochRecord:
    """Record of the samples that one epoch of a loader served to this process."""

    number: int
    training: bool  # whether gradients were enabled when it began
    dataset_epoch: int | None  # `dataset.epoch` in the main process
    complete: bool = False
    cycled: bool = False  # whether `itertools.cycle` repeats the batches
    sizes: list[int] = field(default_factory=list)  # samples of each batch
    workers: list[int] = field(default_factory=list)  # worker of each batch
    indices: list[int] | None = field(default_factory=list)  # None: unknown
    prints: list[int] = field(default_factory=list)  # fingerprints of the samples
    labels: list[Any] = field(default_factory=list)
    states: dict[int, Any] = field(default_factory=dict)  # worker: generators of its first fetch
    worker_epochs: dict[int, int] = field(default_factory=dict)
    damage: list[tuple[int, str]] = field(default_factory=list)  # number of the batch, words
    forms: dict[str, int] = field(default_factory=dict)  # dtypes: first batch that had them
    spreads: list[tuple[int, int, Spread]] = field(default_factory=list)  # batch, place in it
    unknown: int = 0  # batches without a description
    thin: int = 0  # bits of a fingerprint that must be zero to be kept

    def add(self, report: tuple[Any, ...] | None, size: int) -> None:
        """Add a batch."""
        if report is None:
            self.unknown += 1
            self.sizes.append(size)
            return
        worker, indices, prints, labels, states, epoch, damaged, dtypes, spread = report
        number = len(self.sizes)
        self.sizes.append(len(prints))
        self.workers.append(worker)
        if indices is None or len(indices) != len(prints):
            self.indices = None
        elif self.indices is not None:
            self.indices += indices
        self.prints += prints
        self.labels += labels
        self.states.setdefault(worker, states)
        if epoch is not None:
            self.worker_epochs.setdefault(worker, epoch)
        self.damage += [(number, words) for words in damaged]
        self.forms.setdefault(dtypes, number)
        if len(self.spreads) < MAX_SPREADS:
            self.spreads += [(number, place, one) for place, one in spread]

    def samples(self) -> list[int] | list[str]:
        """Return the identities of the samples as a log lists them."""
        if self.indices is not None:
            return [int(one) for one in self.indices]
        return [f"{int(one):016x}" for one in self.prints]

    def pack(self) -> None:
        """Store the samples as arrays of 8 bytes each, or fewer of a very long epoch."""
        prints = np.asarray(self.prints, dtype=np.uint64)
        indices = None if self.indices is None else np.asarray(self.indices, dtype=np.int64)
        while len(prints) >> self.thin > MAX_SAMPLES:
            self.thin += 1
        self.prints, self.indices = prints, indices  # type: ignore[assignment]


Log = Callable[["Audited", EpochRecord, tuple[Any, ...]], None]


@dataclass
class Audited:
    """One loader in one process, with its epochs."""

    name: str
    rank: int
    ranks: int
    workers: int
    batch_size: int
    drop_last: bool
    expected: int | None  # samples of an epoch on this rank, None for a stream
    total: int | None  # length of the dataset
    draws_again: bool  # whether the sampler draws with replacement
    base: tuple[int, int]  # process, and identity of the dataset below all subsets in it
    subset: Any = None  # indices into this dataset, None for all
    epochs: list[EpochRecord] = field(default_factory=list)


def describe(loader: DataLoader[Any], name: str) -> Audited:
    """Describe a loader without using it."""
    dataset, sampler = loader.dataset, loader.sampler
    stream = isinstance(dataset, IterableDataset)
    again = isinstance(sampler, WeightedRandomSampler) or (
        isinstance(sampler, RandomSampler) and sampler.replacement
    )
    below, indices = dataset, None
    while isinstance(below, Subset):
        own = np.asarray(below.indices)
        indices, below = own if indices is None else own[indices], below.dataset
    custom = loader.batch_sampler is not None and loader.batch_size is None
    total = None if stream else _length(dataset)
    return Audited(
        name,
        *_rank(),
        loader.num_workers,
        loader.batch_size or 0,
        bool(loader.drop_last),
        None if stream or custom else _length(sampler),
        total,
        again,
        (os.getpid(), id(below)),
        indices,
    )


def _rank() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except TypeError:
        return None


class Account:
    """Adds the batches of one epoch to a record while the loop takes them."""

    def __init__(self, audited: Audited, loader: DataLoader[Any], log: Log | None = None):
        epoch = getattr(loader.dataset, "epoch", None)
        known = epoch if isinstance(epoch, int) else None
        self.audited, self.log = audited, log
        self.epoch = EpochRecord(len(audited.epochs), torch.is_grad_enabled(), known)
        audited.epochs.append(self.epoch)
        self.listener = AuditListener(loader.dataset)

    def begin(
        self, loader: DataLoader[Any], make: Callable[[Any], Iterator[Any]] = iter
    ) -> Iterator[Any]:
        """Return the iterator of a loader whose batches bring their descriptions."""
        return listen(loader, [self.listener], make)

    def take(self, received: Any) -> Any:
        """Add a batch, and return it as the loop would get it without an audit."""
        batch, report = detach_report(received)
        if self.audited.workers == 0:
            report, self.listener.report = self.listener.report, None
        self.epoch.add(report, 0)
        if self.log is not None and report is not None:
            self.log(self.audited, self.epoch, report)
        return batch

    def end(self, *, complete: bool) -> None:
        """End the epoch."""
        self.epoch.complete = complete
        self.epoch.pack()
