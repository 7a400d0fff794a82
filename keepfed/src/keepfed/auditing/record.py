"""Record what each epoch of a loader served: a listener in the workers, an account in the loop."""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)

from keepfed.auditing.samples import (
    Damage,
    damage,
    fingerprint,
    form,
    generator_states,
    label_of,
)
from keepfed.measure.hook import Listener, attach_report, detach_report, listen
from keepfed.measure.records import MAIN

UNSEEN = 0  # fingerprint of a sample whose content was not inspected
MAX_COST = 0.02  # maximum share of a worker's time for optional fingerprints
SURE_BATCHES = 32  # batches of a process that are inspected in detail at any cost
MAX_SAMPLES = 10_000_000  # samples of a loader that are recorded; each takes 24 bytes


class Draws(NamedTuple):
    """Random generators of a worker during one fetch."""

    before: tuple[int, ...]  # hash of the state of each generator of the dataset
    after: tuple[int, ...]
    ids: list[int]  # samples of the fetch


class BatchReport(NamedTuple):
    """Description of a batch by the process that built it."""

    worker: int
    indices: list[int] | None  # None: the dataset is a stream
    prints: list[int]  # fingerprints of the samples
    labels: list[Any]
    fetch: Draws
    dataset_epoch: int | None  # `dataset.epoch` in this process
    damage: list[Damage]
    form: str
    dropped: int  # samples that were None


class AuditListener(Listener):
    """Describes each batch in the process that builds it, and sends the description along."""

    def __init__(self, dataset: Any = None, *, thorough: bool = False):
        """Create a listener.

        Args:
            dataset: The dataset, which is needed in the main process only.
            thorough: Whether to inspect all batches in detail, whatever it costs.
        """
        self.dataset, self.worker, self._always = dataset, MAIN, thorough
        self._index: list[int] | None = None
        self._before: tuple[int, ...] = ()
        self._thorough = True  # whether this batch is inspected in detail
        self._prints, self._labels = list[int](), list[Any]()
        self._dropped = 0
        self.report: BatchReport | None = None
        self._started, self._spent = perf_counter(), 0.0
        self._batches = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "dataset": None}

    def worker_started(self, worker_id: int) -> None:
        """Remember the worker and its copy of the dataset."""
        info = get_worker_info()
        self.worker, self.dataset = worker_id, info.dataset if info else None
        self._started = perf_counter()

    def _has_time(self) -> bool:
        """Return whether the audit has used less than its share of the time so far."""
        self._batches += 1
        return (
            self._always
            or self._batches <= SURE_BATCHES
            or self._spent < MAX_COST * (perf_counter() - self._started)
        )

    def fetch_begins(self, index: Any) -> None:
        """Remember the indices, and the states of the dataset's random generators."""
        begun = perf_counter()
        self._thorough = self._has_time()
        self._index = _numbers(index)
        self._before = generator_states(self.dataset) if self._thorough else ()
        self._spent += perf_counter() - begun

    def samples_made(self, samples: Any) -> None:
        """Identify the samples before they are collated, without those that are None."""
        begun = perf_counter()
        listed = samples if isinstance(samples, list) else [samples]
        served = [sample for sample in listed if sample is not None]
        self._dropped = len(listed) - len(served)
        if self._index is not None and len(self._index) == len(listed):
            pairs = zip(self._index, listed, strict=True)
            self._index = [number for number, sample in pairs if sample is not None]
        if self._thorough or self._index is None:
            self._prints = [fingerprint(sample) for sample in served]
        else:  # the index identifies the sample, so its content may stay unknown
            self._prints = [UNSEEN] * len(served)
        self._labels = [label_of(sample) for sample in served]
        self._spent += perf_counter() - begun

    def batch_made(self, batch: Any) -> Any:
        """Attach the description to the batch, or keep it in the main process."""
        begun = perf_counter()
        after = generator_states(self.dataset) if self._thorough else ()
        ids = self._prints if self._index is None else self._index
        report = BatchReport(
            self.worker,
            self._index,
            self._prints,
            self._labels,
            Draws(self._before, after, ids if self._before else []),
            _epoch_of(self.dataset),
            damage(batch),
            form(batch),
            self._dropped,
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
    dataset_epoch: int | None = None  # `dataset.epoch` in the main process
    sampler_epoch: int | None = None  # `epoch` of a DistributedSampler that shuffles
    expected: int | None = None  # samples of the sampler, None if unknown
    stepped: bool = False  # whether an optimizer made a step between two batches
    complete: bool = False
    cycled: bool = False  # whether `itertools.cycle` repeats the batches
    batches: int = 0
    sizes: list[int] = field(default_factory=list)  # samples of each recorded batch
    workers: list[int] = field(default_factory=list)  # worker of each recorded batch
    indices: array[int] | None = field(default_factory=lambda: array("q"))  # None: unknown
    prints: array[int] = field(default_factory=lambda: array("Q"))  # fingerprints
    labels: list[Any] = field(default_factory=list)
    fetches: dict[int, list[Draws]] = field(default_factory=dict)  # first two of each worker
    worker_epochs: dict[int, int] = field(default_factory=dict)  # highest epoch of each worker
    damage: list[tuple[int, Damage]] = field(default_factory=list)  # number of the batch, damage
    forms: dict[str, int] = field(default_factory=dict)  # dtypes: first batch that had them
    dropped: int = 0  # samples that were None
    unknown: int = 0  # batches without a description
    unrecorded: int = 0  # batches beyond `MAX_SAMPLES`

    def add(self, report: BatchReport | None) -> None:
        """Add a batch."""
        if report is None:
            self.unknown += 1
            return
        number, worker = len(self.sizes), report.worker
        self.sizes.append(len(report.prints))
        self.workers.append(worker)
        if report.indices is None or len(report.indices) != len(report.prints):
            self.indices = None
        elif self.indices is not None:
            self.indices.extend(report.indices)
        self.prints.extend(report.prints)
        self.labels += report.labels
        self.dropped += report.dropped
        if len(first := self.fetches.setdefault(worker, [])) < 2:
            first.append(report.fetch)
        if report.dataset_epoch is not None:
            latest = self.worker_epochs.get(worker, report.dataset_epoch)
            self.worker_epochs[worker] = max(latest, report.dataset_epoch)
        self.damage += [(number, each) for each in report.damage]
        self.forms.setdefault(report.form, number)


Log = Callable[["Audited", EpochRecord, BatchReport], None]


@dataclass
class Audited:
    """One loader in one process, with its epochs."""

    name: str
    rank: int
    ranks: int
    groups: int  # process groups: 0 if each rank trains alone, more than 1 if ranks have roles
    workers: int
    batch_size: int
    drop_last: bool
    total: int | None  # length of the dataset, None for a stream
    draws_again: bool  # whether the sampler draws with replacement
    base: tuple[int, int]  # process, and identity of the dataset below all subsets in it
    subset: Any = None  # indices into this dataset, None for all
    loop: str = ""  # kind of the dataset and place of the loop, which several loaders may share
    loader: int = 0  # number of the loader in its process
    epochs: list[EpochRecord] = field(default_factory=list)


def describe(loader: DataLoader[Any], name: str) -> Audited:
    """Describe a loader without using it."""
    dataset, sampler = loader.dataset, loader.sampler
    again = isinstance(sampler, WeightedRandomSampler) or (
        isinstance(sampler, RandomSampler) and sampler.replacement
    )
    below, indices = dataset, None
    while isinstance(below, Subset):
        own = np.asarray(below.indices)
        indices, below = own if indices is None else own[indices], below.dataset
    return Audited(
        name,
        *_rank(),
        loader.num_workers,
        loader.batch_size or 0,
        bool(loader.drop_last),
        None if isinstance(dataset, IterableDataset) else _length(dataset),
        again,
        (os.getpid(), id(below)),
        indices,
        loop=name,
    )


def _rank() -> tuple[int, int, int]:
    """Return the rank, the number of ranks, and the number of process groups."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        world = getattr(distributed.distributed_c10d, "_world", None)
        groups = len(getattr(world, "pg_map", ()))
        return distributed.get_rank(), distributed.get_world_size(), groups
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)), 0


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # a length of the program's own may raise anything
        return None


def _epoch_of(owner: Any) -> int | None:
    epoch = getattr(owner, "epoch", None)
    return epoch if isinstance(epoch, int) else None


class Account:
    """Adds the batches of an iterator to a record while the loop takes them."""

    def __init__(
        self,
        audited: Audited,
        loader: DataLoader[Any],
        *,
        log: Log | None = None,
        training: bool | None = None,
        thorough: bool = False,
    ):
        """Create an account.

        Args:
            audited: Record of the loader.
            loader: The loader, of which the account keeps no strong reference.
            log: Function that logs each batch.
            training: Whether this is training. By default, whether gradients are enabled.
            thorough: Whether to compare the contents of all samples, whatever it costs.
        """
        self.audited, self.log = audited, log
        self.listener = AuditListener(loader.dataset, thorough=thorough)
        self._loader, self._training = weakref.ref(loader), training
        self._recorded = sum(len(epoch.prints) for epoch in audited.epochs)
        self._batches: int | None = None  # batches of an epoch, None if unknown
        self.epoch: EpochRecord

    def begin(
        self, loader: DataLoader[Any], make: Callable[[Any], Iterator[Any]] = iter
    ) -> Iterator[Any]:
        """Return the iterator of a loader whose batches bring their descriptions."""
        self.start_epoch()
        return listen(loader, [self.listener], make)

    def start_epoch(self) -> None:
        """Start to record the next epoch."""
        training = torch.is_grad_enabled() if self._training is None else self._training
        self.epoch = EpochRecord(
            len(self.audited.epochs), training, _epoch_of(self.listener.dataset)
        )
        self.audited.epochs.append(self.epoch)
        loader = self._loader()
        if loader is None or self.audited.total is None:
            return
        sampler = loader.sampler
        if isinstance(sampler, DistributedSampler) and sampler.shuffle:
            self.epoch.sampler_epoch = _epoch_of(sampler)
        # The length of a batch sampler of the program may draw random numbers.
        if loader.batch_size or loader.batch_sampler is None:
            self.epoch.expected = _length(sampler)
            self._batches = _length(loader)
        elif type(loader).__len__ is not DataLoader.__len__:
            self._batches = _length(loader)

    def is_full(self) -> bool:
        """Return whether the running epoch has all batches that `len(loader)` promises."""
        return self.epoch.batches > 0 and self.epoch.batches == self._batches

    def take(self, received: Any) -> Any:
        """Add a batch, and return it as the loop would get it without an audit.

        An iterator that continues after the last batch of an epoch begins another one. Some loaders
        make a single iterator without an end for all epochs.
        """
        batch, report = detach_report(received)
        if self.audited.workers == 0:
            report, self.listener.report = self.listener.report, None
        if self.is_full():
            self.epoch.complete = True
            self.start_epoch()
        self.epoch.batches += 1
        if self._recorded >= MAX_SAMPLES:
            self.epoch.unrecorded += 1
        else:
            self.epoch.add(report)
            self._recorded += len(report.prints) if report else 0
        if self.log is not None and report is not None:
            self.log(self.audited, self.epoch, report)
        return batch
