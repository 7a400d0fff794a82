"""Iterate over a loader so that its workers' spans come back with each batch.

The meter in the worker packs the spans of a batch, and what its fetch cost, up with it; here they
are taken out and entered in the trace, with the number that the batch has in this run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any

import torch
from torch.utils.data import DataLoader

from keepfed.measure.hook.fetch_meter import AboutProcess, FetchMeter, Sink
from keepfed.measure.hook.loader_hook import (
    attach_report,
    data_loader_in,
    detach_report,
    get_listeners,
    listen_within,
)
from keepfed.measure.records import Fetch, Row
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
    """Yield the batches of `loader` and enter spans and samples in `trace`.

    Args:
        trace: the one that is recording.
        loader: a `DataLoader`, or anything that gives batches.
        ids: how to read the sample ids from a batch: a key, or a function of the batch.
        sinks: what else takes the fetches of a `DataLoader`.
        about_process: as in `FetchMeter`.
        started: is given the loader's own iterator as soon as there is one, and that of a
            `DataLoader` in it.
    """
    in_trace: InTrace | None = None
    begin: Callable[[], Iterator[Any]] = partial(iter, loader)
    inner = data_loader_in(loader)
    if inner is not None:
        meter = FetchMeter(*sinks, about_process=about_process)
        if type(loader).__iter__ is DataLoader.__iter__:  # others would look into our parcels
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
            log = current()  # a recording inside of `trace` has it
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
            batch, known = _told(received, trace, in_trace)
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
    """Enters each fetch in the trace of its process; a worker sends it with the batch."""

    def __init__(self) -> None:
        # Shared memory, because persistent workers outlive the recording they were started in.
        self.on = RawArray("B", 1)
        self.in_worker = False
        self.index: Any = None  # of the samples of the last batch

    def worker_started(self, worker_id: int) -> None:
        """Send what is measured from now on."""
        self.in_worker = True

    def wants(self, index: Any) -> bool:
        """Note which samples are wanted."""
        self.index = index
        return bool(self.on[0]) and (self.in_worker or current() is not None)

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Enter the fetch in the trace of this process; in a worker send it with the batch."""
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
    """Return the meter that running persistent workers know and that can send to a trace."""
    known = (one for one in get_listeners(loader) if isinstance(one, FetchMeter))
    return next((meter for meter in known if _sink_of(meter)), None)


def _sink_of(meter: FetchMeter | None) -> InTrace | None:
    sinks = meter.sinks if meter is not None else ()
    return next((sink for sink in sinks if isinstance(sink, InTrace)), None)


def _told(received: Any, trace: SpanLog, sink: InTrace | None) -> tuple[Any, Ids]:
    """Return a batch and the indices of its samples; None if they are not known."""
    if sink is None:
        return received, None
    batch, about = detach_report(received)
    if about is None:
        return batch, _indices(sink.index)  # what workers fetch, they alone know
    rows, fetch, note, ids = about
    trace.rows += [(*row[:4], trace.served) for row in rows]
    trace.fetches.append(Fetch._make(fetch))
    trace.mention(note)
    return batch, ids


def _indices(index: Any) -> Ids:
    index = _plain(index)
    several = isinstance(index, list) or (isinstance(index, Sequence) and type(index) is not str)
    # most are numbers: a call for each of them would take as long as all else
    ids = [i if type(i) is int else _plain(i) for i in index] if several else [index]
    return None if None in ids else ids


def _plain(value: Any) -> Any:
    """Return tensors and arrays as numbers or lists of them: two equal tensors are two keys."""
    return value.tolist() if hasattr(value, "tolist") else value


def _read_ids(batch: Any, ids: SampleIds) -> list[Hashable]:
    found = batch[ids] if isinstance(ids, str) else ids(batch)
    return [_plain(one) for one in _plain(found)]


def batch_size(batch: Any) -> int:
    """Return the length of the first tensor found in a nested batch, or of the list itself."""
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
