"""Iterate over a loader so that its workers' spans come back with each batch.

Nothing is added to the dataset and no file or extra queue is used: while the iterator is being
created, the loader's `collate_fn` and `worker_init_fn` are exchanged for wrappers that start
recording in the worker and put the spans of a batch into one `Parcel` with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data._utils import fetch as torch_fetch
from torch.utils.data._utils.pin_memory import pin_memory as pin_tensors

from course_utils.measure.spans.span_log import SampleIds, Span, SpanLog, activate, current, stage

Ids = Sequence[Hashable] | None


def traced_batches(
    trace: SpanLog,
    loader: Iterable[Any],
    ids: SampleIds | None,
    started: Callable[[Iterator[Any]], None] | None = None,
) -> Iterator[Any]:
    """Yield the batches of `loader` and enter spans and samples in `trace`.

    `started` is given the loader's own iterator as soon as there is one.
    """
    tracing = _Tracing(loader) if isinstance(loader, DataLoader) else None
    batches: Iterator[Any] | None = None
    try:
        while True:
            trace.batch = trace.served
            with stage("wait", lane="main"):
                if batches is None:  # starting the workers is part of the first wait
                    batches = tracing.start() if tracing else iter(loader)
                    if started is not None:
                        started(batches)
                try:
                    received = next(batches)
                except StopIteration:
                    break
            batch, known = _open(received, trace, tracing)
            known = _read_ids(batch, ids) if ids is not None else known
            trace.serve(batch_size(batch) if known is None else len(known), known)
            trace.served += 1
            yield batch
    finally:
        trace.batch = -1
        if tracing:
            tracing.stop()


@dataclass
class Parcel:
    """What a worker sends: the batch, how it was made, and the indices of its samples."""

    batch: Any
    spans: list[Span]
    note: str
    ids: Ids

    def pin_memory(self) -> Parcel:
        """Pin the batch; called by the loader's pinning thread."""
        batch = pin_tensors(self.batch)  # type: ignore[no-untyped-call]
        return replace(self, batch=batch)


class _Tracing:
    """Exchange the loader's two functions for the moment in which its iterator is made."""

    def __init__(self, loader: DataLoader[Any]):
        self.loader = loader
        workers = getattr(loader, "_iterator", None)  # persistent workers of an earlier epoch
        known = getattr(workers, "_collate_fn", None)
        self.collate = known if isinstance(known, _TracedCollate) else _TracedCollate(loader)

    def start(self) -> Iterator[Any]:
        loader = self.loader
        originals = loader.collate_fn, loader.worker_init_fn
        self.collate.switch.fill_(True)
        try:
            loader.collate_fn = self.collate
            if loader.num_workers:
                loader.worker_init_fn = _TracedInit(loader.worker_init_fn)
            batches = iter(loader)
        finally:
            loader.collate_fn, loader.worker_init_fn = originals
        fetcher = getattr(batches, "_dataset_fetcher", None)  # num_workers=0: fetched right here
        if fetcher is not None:
            _note_fetches(fetcher)
        return batches

    def stop(self) -> None:
        """Let persistent workers send plain batches again."""
        self.collate.switch.fill_(False)


class _TracedCollate:
    """Collate as before and, in a worker that is being traced, add the spans."""

    def __init__(self, loader: DataLoader[Any]):
        self.collate = loader.collate_fn
        # Shared memory, because persistent workers outlive the recording they were started in.
        self.switch = torch.zeros((), dtype=torch.bool)
        self.switch.share_memory_()  # type: ignore[no-untyped-call]

    def __call__(self, samples: Any) -> Any:
        trace = current()
        if trace is None or not self.switch:
            if trace is not None and get_worker_info() is not None:
                trace.drain()
            return self.collate(samples)
        _mark_unnamed_fetch(trace)
        with stage("collate"):
            batch = self.collate(samples)
        if get_worker_info() is None:
            return batch
        return Parcel(batch, trace.drain(), trace.note, _fetch.ids)


class _TracedInit:
    """Start recording in the worker, after the loader's own `worker_init_fn`."""

    def __init__(self, original: Callable[[int], None] | None):
        self.original = original

    def __call__(self, worker_id: int) -> None:
        if self.original is not None:
            self.original(worker_id)
        activate(SpanLog(lane=f"worker {worker_id}"))
        for kind in (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher):
            _note_fetches(kind)


@dataclass
class _Fetch:
    """Start and sample indices of the fetch this process is busy with."""

    start_ns: int = 0
    spans_before: int = 0
    ids: Ids = None


_fetch = _Fetch()


def _note_fetches(fetcher: Any) -> None:
    """Make `fetcher.fetch` (of a fetcher or of its class) note when it starts, and for what."""
    fetch = fetcher.fetch

    def noted_fetch(*args: Any) -> Any:
        trace = current()
        if trace is not None:
            _fetch.start_ns, _fetch.spans_before = trace.clock(), len(trace._spans)
            _fetch.ids = _indices(args[-1])
        return fetch(*args)

    fetcher.fetch = noted_fetch


def _indices(index: Any) -> Ids:
    index = _plain(index)
    indices = index if isinstance(index, Sequence) and not isinstance(index, str) else [index]
    return None if any(i is None for i in indices) else [_plain(i) for i in indices]


def _plain(value: Any) -> Any:
    """Return tensors and arrays as numbers or lists of them: two equal tensors are two keys."""
    return value.tolist() if hasattr(value, "tolist") else value


def _mark_unnamed_fetch(trace: SpanLog) -> None:
    """Count a fetch in which the dataset names no stage as `read`, whatever else it may be."""
    if len(trace._spans) == _fetch.spans_before and _fetch.start_ns:
        trace.add(Span(trace.lane, "read", _fetch.start_ns, trace.clock(), trace.batch))


def _open(received: Any, trace: SpanLog, tracing: _Tracing | None) -> tuple[Any, Ids]:
    if isinstance(received, Parcel):
        for span in received.spans:
            trace.add(span._replace(batch=trace.served))
        trace.mention(received.note)
        return received.batch, received.ids
    fetched_here = tracing is not None and tracing.loader.num_workers == 0
    return received, _fetch.ids if fetched_here else None


def _read_ids(batch: Any, ids: SampleIds) -> list[Hashable]:
    found = batch[ids] if isinstance(ids, str) else ids(batch)
    return [_plain(one) for one in _plain(found)]


def batch_size(batch: Any) -> int:
    """Return the length of the first tensor found in a nested batch, or of the list itself."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else 1
    if is_dataclass(batch):
        batch = {field.name: getattr(batch, field.name) for field in fields(batch)}
    if isinstance(batch, Mapping):
        return batch_size(next(iter(batch.values()))) if batch else 0
    if isinstance(batch, (list, tuple)):
        tensors = (part for part in batch if isinstance(part, torch.Tensor))
        first = next(islice(tensors, 1), None)
        return len(batch) if first is None else batch_size(first)
    return 1
