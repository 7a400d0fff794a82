"""Iterate over a loader so that each batch brings the spans of its worker.

The meter in a worker sends the spans and the fetch of a batch along with it. The main process
removes them from the batch and adds them to the trace, with the number of the batch in this run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any

import torch
from torch.utils.data import DataLoader

from keepfed.measure.hook.fetch_meter import AboutProcess, FetchMeter
from keepfed.measure.hook.loader_hook import (
    attach_report,
    data_loader_in,
    detach_report,
    get_listeners,
    listen_within,
)
from keepfed.measure.records import Fetch, Row, Sink
from keepfed.measure.spans import SampleIds, SpanLog, current

Ids = Sequence[Hashable] | None
_END = object()


def traced_batches(
    trace: SpanLog,
    loader: Iterable[Any],
    ids: SampleIds | None = None,
    *,
    sinks: Sequence[Sink] = (),
    about_process: AboutProcess | None = None,
    started: Callable[[Iterator[Any]], None] = lambda batches: None,
) -> Generator[Any, None, None]:
    """Yield the batches of `loader`, and add their spans and samples to `trace`.

    Args:
        trace: The trace that is recording.
        loader: A `DataLoader`, or any iterable of batches.
        ids: Key of the sample IDs in a batch, or a function that returns them for a batch.
        sinks: Further receivers of the fetches of a `DataLoader`.
        about_process: As in `FetchMeter`.
        started: Function called with the loader's iterator when it exists, and with the iterator
            of a `DataLoader` inside it.
    """
    in_trace: InTrace | None = None
    begin: Callable[[], Iterator[Any]] = partial(iter, loader)
    inner = data_loader_in(loader)
    if inner is not None:
        meter = FetchMeter(*sinks, about_process=about_process)
        # Other loaders might inspect the batches, and must not see the attached reports.
        if type(loader).__iter__ is DataLoader.__iter__:
            running = _meter_of(inner)
            in_trace = _sink_of(running) or InTrace()
            meter = running or FetchMeter(
                *sinks, in_trace, sparse=not sinks, about_process=about_process
            )
            in_trace.on[0] = True
        begin = partial(listen_within, loader, inner, [meter], started)
    batches: Iterator[Any] | None = None
    try:
        while True:
            trace.batch = trace.served
            log = current()  # not `trace` if another recording is nested in it
            asked_ns = log.clock() if log is not None else 0
            try:
                if batches is None:  # starting the workers is part of the first wait
                    batches = begin()
                    started(batches)
                received = next(batches, _END)
            finally:
                if log is not None:
                    log.rows.append(("main", "wait", asked_ns, log.clock(), log.batch))
            if received is _END:
                break
            batch, known = _unpack(received, trace, in_trace)
            if ids is not None:
                known = _read_ids(batch, ids)
            trace.serve(batch_size(batch) if known is None else len(known), known)
            trace.served += 1
            yield batch
    finally:
        trace.batch = -1
        if in_trace is not None:
            in_trace.on[0] = False  # persistent workers send plain batches again


class InTrace(Sink):
    """A sink that adds each fetch to the trace, or sends it with its batch from a worker."""

    def __init__(self) -> None:
        # Shared memory, because persistent workers outlive the recording they were started in.
        self.on = RawArray("B", 1)
        self.in_worker = False
        self.index: Any = None  # indices of the samples of the last batch

    def worker_started(self, worker_id: int) -> None:
        """Start to send fetches along with their batches."""
        self.in_worker = True

    def wants(self, index: Any) -> bool:
        """Store the indices of the samples, and return whether a trace is recording."""
        self.index = index
        return bool(self.on[0]) and (self.in_worker or current() is not None)

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Add the fetch to the trace of this process, or send it with the batch in a worker."""
        if not self.on[0] or (log := current()) is None:
            return batch
        lane, number = log.lane, log.batch
        spans = list[Row]()
        if not rows:
            spans.append((lane, "read", fetch.began_ns, fetch.collated_ns, number))
        spans.append((lane, "collate", fetch.collated_ns, fetch.ended_ns, number))
        if not self.in_worker:
            log.rows += spans
            log.fetches.append(fetch)
            return batch
        return attach_report(batch, ([*rows, *spans], tuple(fetch), log.note, _indices(self.index)))


def _meter_of(loader: DataLoader[Any]) -> FetchMeter | None:
    """Return the meter of running persistent workers if it can send to a trace."""
    known = (one for one in get_listeners(loader) if isinstance(one, FetchMeter))
    return next((meter for meter in known if _sink_of(meter)), None)


def _sink_of(meter: FetchMeter | None) -> InTrace | None:
    sinks = meter.sinks if meter is not None else ()
    return next((sink for sink in sinks if isinstance(sink, InTrace)), None)


def _unpack(received: Any, trace: SpanLog, sink: InTrace | None) -> tuple[Any, Ids]:
    """Return a batch and the indices of its samples, or None if they are unknown."""
    if sink is None:
        return received, None
    batch, about = detach_report(received)
    if about is None:
        return batch, _indices(sink.index)  # the indices are set only without workers
    rows, fetch, note, ids = about
    trace.rows += [(*row[:4], trace.served) for row in rows]
    trace.fetches.append(Fetch._make(fetch))
    trace.mention(note)
    return batch, ids


def _indices(index: Any) -> Ids:
    index = _plain(index)
    several = isinstance(index, list) or (isinstance(index, Sequence) and type(index) is not str)
    # Check for int first, because calling `_plain` for every index would double the time.
    ids = [i if type(i) is int else _plain(i) for i in index] if several else [index]
    return None if None in ids else ids


def _plain(value: Any) -> Any:
    """Return tensors and arrays as numbers or lists, because equal tensors are different keys."""
    return value.tolist() if hasattr(value, "tolist") else value


def _read_ids(batch: Any, ids: SampleIds) -> list[Hashable]:
    found = batch[ids] if isinstance(ids, str) else ids(batch)
    return [_plain(one) for one in _plain(found)]


def batch_size(batch: Any) -> int:
    """Return the length of the first tensor in a nested batch, or of the list itself."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else 1
    if isinstance(batch, (list, tuple)):
        for part in batch:
            if isinstance(part, torch.Tensor):
                return batch_size(part)
        return len(batch)
    if is_dataclass(batch):
        batch = {field.name: getattr(batch, field.name) for field in fields(batch)}
    if isinstance(batch, Mapping):
        return batch_size(next(iter(batch.values()))) if batch else 0
    return 1
