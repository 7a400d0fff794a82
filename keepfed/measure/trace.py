"""Record a training loop, and look at it.

    with record() as trace:
        for batch in trace.batches(loader):
            with stage("compute"):
                train(batch)
    print(trace.summary())
    trace.timeline()

`measure.spans` records and computes, `measure.hook` follows a loader, `measure.picture` draws; a
`Trace` is the handle to all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keepfed.measure.spans import Clock, SampleIds, SpanLog, Summary, activate, summarise

if TYPE_CHECKING:
    from keepfed.measure.picture import Timeline


class Trace(SpanLog):
    """The spans of one run and the ledger of its samples, which can follow a loader and show them.

    `spans` are sorted by start; their times are nanoseconds of `time.perf_counter_ns`, from 0 in a
    run that was simulated or read from a file.
    """

    def batches(self, loader: Iterable[Any], ids: SampleIds | None = None) -> Iterator[Any]:
        """Iterate over `loader`, recording the wait for each batch and what the workers did for it.

        Args:
            loader: a `DataLoader` of any kind (it is left as it was) or any other iterable.
                Persistent workers that ran before they were first recorded send no spans.
            ids: how to read the sample ids from a batch: a key, or a function of the batch. Needed
                for the ledger of an `IterableDataset`; a map-style dataset has its indices.

        Raises:
            KeepfedError: this version of torch does not let its DataLoader be recorded.
        """
        from keepfed.measure.hook import traced_batches  # which needs torch

        return traced_batches(self, loader, ids)

    def summary(self) -> Summary:
        """Return utilisation, idle share, AU, stall per stage and the ledger."""
        return summarise(self)

    def timeline(self) -> Timeline:
        """Return the interactive picture: a widget in a notebook, SVG or text elsewhere."""
        from keepfed.measure.picture import Timeline  # drawing is loaded when one draws

        return Timeline(self)


@contextmanager
def record(clock: Clock = time.perf_counter_ns, label: str = "") -> Iterator[Trace]:
    """Record everything inside the `with` block; the trace stays readable afterwards.

    Recordings may be nested: inside, the innermost one records.

    Args:
        clock: returns nanoseconds, the same in all processes of this machine.
        label: the name of the run, which pictures show.
    """
    trace = Trace(clock=clock, label=label)
    previous = activate(trace)
    try:
        yield trace
    finally:
        activate(previous)
        trace.close()
