"""Iterate over a loader so that each batch brings the spans of its worker.

The meter in a worker sends the spans and the fetch of a batch along with it. The main process
removes them from the batch and adds them to the trace, with the number of the batch in this run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch.utils.data import DataLoader

from keepfed.measure.hook.fetch_meter import FetchMeter, Ids, plain, received_report
from keepfed.measure.hook.loader_hook import (
    Listener,
    data_loader_in,
    get_listeners,
    listen_within,
    receive_report,
    replace_next,
    restore_next,
)
from keepfed.measure.hook.process_figures import ProcessFigures
from keepfed.measure.hook.step_bounds import StepBounds
from keepfed.measure.spans import SampleIds, SpanLog, current

_END = object()


def traced_batches(
    trace: SpanLog,
    loader: Iterable[Any],
    ids: SampleIds | None = None,
    *,
    bounds: StepBounds | None = None,
    figures: ProcessFigures | None = None,
    listeners: Sequence[Listener] = (),
    started: Callable[[Iterator[Any]], None] = lambda batches: None,
) -> Generator[Any, None, None]:
    """Yield the batches of `loader`, and add their spans, fetches and samples to `trace`.

    Args:
        trace: The trace that is recording.
        loader: A `DataLoader`, or any iterable of batches.
        ids: Key of the sample IDs in a batch, or a function that returns them for a batch.
        bounds: Gets the time of each step, if this thread runs the loop.
        figures: As in `FetchMeter`.
        listeners: Further listeners in the processes that build the batches of a `DataLoader`.
        started: Function called with the loader's iterator when it exists, and with the iterator
            of a `DataLoader` inside it.
    """
    begin: Callable[[], Iterator[Any]] = partial(iter, loader)
    arrivals: _Arrivals | None = None
    inner = data_loader_in(loader)
    # A loader around another one may build its batches from several of them.
    is_direct = type(loader).__iter__ is DataLoader.__iter__
    if inner is not None:
        running = (one for one in get_listeners(inner) if type(one) is FetchMeter)
        meter = next(running, None) or FetchMeter(figures, persistent=inner.persistent_workers)
        meter.on[0] = True
        arrivals = _Arrivals(trace, meter)
        begin = partial(arrivals.begin, loader, inner, [*listeners, meter], started)
    batches: Iterator[Any] | None = None
    if get_ident() != trace.thread:  # a prefetching thread receives batches long before their step
        bounds = None
    try:
        while True:
            trace.batch = trace.served
            log = current()  # not `trace` if another recording is nested in it
            if bounds is not None and log is trace:
                bounds.asked()
            asked_ns = log.clock() if log is not None else 0
            try:
                if batches is None:  # starting the workers is part of the first wait
                    batches = begin()
                    started(batches)
                batch = next(batches, _END)
            finally:
                if log is not None:
                    log.rows.append(("main", "wait", asked_ns, log.clock(), log.batch))
            if batch is _END:
                break
            known = arrivals.ids if arrivals is not None and is_direct else None
            if ids is not None:
                known = _read_ids(batch, ids)
            trace.batch = trace.served  # a prefetcher in `loader` also received later batches
            trace.serve(batch_size(batch) if known is None else len(known), known)
            trace.served += 1
            if bounds is not None and log is trace:
                bounds.got(trace.served - 1)
            yield batch
    finally:
        trace.batch = -1
        if bounds is not None and current() is trace:
            bounds.asked()
        if arrivals is not None:
            arrivals.end()


class _Arrivals:
    """Adds the reports of the batches that a `DataLoader` returns to a trace."""

    def __init__(self, trace: SpanLog, meter: FetchMeter):
        self.trace, self.meter = trace, meter
        self.ids: Ids = None  # indices of the samples of the last batch
        self.number = trace.served
        self._iterators: list[Iterator[Any]] = []

    def begin(
        self,
        around: Iterable[Any],
        loader: DataLoader[Any],
        listeners: Sequence[Listener],
        started: Callable[[Iterator[Any]], None],
    ) -> Iterator[Any]:
        """Return `iter(around)`, and receive the reports of the `loader` in it."""

        def made(batches: Iterator[Any]) -> None:
            self._receive(batches)
            started(batches)

        batches = listen_within(around, loader, listeners, made)
        if loader._iterator is not None:  # workers that already run send reports again
            self._receive(loader._iterator)
        return batches

    def end(self) -> None:
        """Let persistent workers send plain batches again."""
        self.meter.on[0] = False
        for iterator in self._iterators:
            restore_next(iterator, receive_report)
            vars(iterator).pop("_take_report", None)  # which keeps the trace

    def _receive(self, iterator: Any) -> None:
        iterator._take_report = self.take
        replace_next(iterator, receive_report)
        self._iterators.append(iterator)

    def take(self, sent: Any) -> None:
        """Add the report that a worker sent, or that the meter of this process has."""
        report = self.meter.last if sent is None else received_report(sent)
        self.meter.last = self.ids = None
        self.trace.batch = self.number
        if report is not None:
            self.trace.rows += [(*row[:4], self.number) for row in report.rows]
            self.trace.fetches.append(report.fetch)
            self.trace.mention(report.note)
            self.ids = report.ids
        self.number += 1


def _read_ids(batch: Any, ids: SampleIds) -> list[Hashable]:
    found = batch[ids] if isinstance(ids, str) else ids(batch)
    return [plain(one) for one in plain(found)]


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
