"""Iterate over a loader so that its workers' spans come back with each batch.

A listener in the worker packs the spans of a batch up with it; here they are taken
out and entered in the trace, with the number that the batch has in this run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from course_utils.measure.hook.loader_hook import (
    Listener,
    data_loader_in,
    listen_within,
    listeners_of,
    packed,
    unpacked,
)
from course_utils.measure.spans import SampleIds, SpanLog, activate, current

Ids = Sequence[Hashable] | None
_END = object()


def traced_batches(
    trace: SpanLog,
    loader: Iterable[Any],
    ids: SampleIds | None = None,
    *,
    beside: Sequence[Listener] = (),
    started: Callable[[Iterator[Any]], None] = lambda batches: None,
) -> Generator[Any, None, None]:
    """Yield the batches of `loader` and enter spans and samples in `trace`.

    Args:
        trace: the one that is recording.
        loader: a `DataLoader`, or anything that gives batches.
        ids: how to read the sample ids from a batch: a key, or a function of the batch.
        beside: other listeners of a `DataLoader`.
        started: is given the loader's own iterator as soon as there is one, and that of a
            `DataLoader` in it.
    """
    tracer: _Tracer | None = None
    begin: Callable[[], Iterator[Any]] = partial(iter, loader)
    inner = data_loader_in(loader)
    if inner is not None:
        listeners = [*beside]
        if type(loader).__iter__ is DataLoader.__iter__:  # others would look into our parcels
            tracer = _tracer_of(inner)
            listeners.append(tracer)  # the first at the end: what others note then is no collating
            tracer.switch.fill_(True)
        begin = partial(listen_within, loader, inner, listeners, started)
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
            batch, known = _told(received, trace, tracer)
            if ids is not None:
                known = _read_ids(batch, ids)
            trace.serve(batch_size(batch) if known is None else len(known), known)
            trace.served += 1
            yield batch
    finally:
        trace.batch = -1
        if tracer is not None:
            tracer.switch.fill_(False)  # persistent workers send plain batches again


class _Tracer(Listener):
    """Enters what a fetch does in the trace of its process; a worker sends that with the batch."""

    def __init__(self) -> None:
        # Shared memory, because persistent workers outlive the recording they were started in.
        self.switch = torch.zeros(1, dtype=torch.uint8, device="cpu")
        self.switch.share_memory_()  # type: ignore[no-untyped-call]
        self.on: Any = (True,)  # the same in a worker, where asking a tensor would take its time
        self.log: SpanLog | None = None  # of a worker, which is this process
        self.trace: SpanLog | None = None  # of this fetch; None: it is not recorded
        self.index: Any = None  # of its samples
        self.began_ns = self.collating_ns = self.spans_before = 0

    def worker_started(self, worker_id: int) -> None:
        """Record in this worker for as long as it lives."""
        self.log, self.on = SpanLog(lane=f"worker {worker_id}"), self.switch.numpy().data
        activate(self.log)

    def fetch_begins(self, index: Any) -> None:
        """Note when, and which samples are wanted."""
        self.index = index
        self.trace = trace = current() if self.on[0] else None
        if trace is not None:
            self.began_ns, self.spans_before = trace.clock(), len(trace.rows)

    def samples_made(self) -> None:
        """Count a fetch in which the dataset names no stage as `read`, whatever else it may be."""
        if (trace := self.trace) is not None:
            self.collating_ns = now_ns = trace.clock()
            if len(trace.rows) == self.spans_before:
                trace.rows.append((trace.lane, "read", self.began_ns, now_ns, trace.batch))

    def batch_made(self, batch: Any) -> Any:
        """Note how long collating took; in a worker pack the spans up with the batch."""
        if (trace := self.trace) is not None:
            now_ns = trace.clock()
            trace.rows.append((trace.lane, "collate", self.collating_ns, now_ns, trace.batch))
        if self.log is None:
            return batch
        rows = self.log.drain()
        return batch if trace is None else packed(batch, (rows, trace.note, _indices(self.index)))


def _tracer_of(loader: DataLoader[Any]) -> _Tracer:
    """Return the tracer that running persistent workers know, or a new one."""
    known = (one for one in listeners_of(loader) if isinstance(one, _Tracer))
    return next(known, None) or _Tracer()


def _told(received: Any, trace: SpanLog, tracer: _Tracer | None) -> tuple[Any, Ids]:
    """Return a batch and the indices of its samples; None if they are not known."""
    if tracer is None:
        return received, None
    batch, about = unpacked(received)
    if about is None:
        return batch, _indices(tracer.index)  # what workers fetch, they alone know
    rows, note, ids = about
    trace.rows += [(*row[:4], trace.served) for row in rows]
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
