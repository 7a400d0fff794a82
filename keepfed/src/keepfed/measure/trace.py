"""Record a training loop, summarize it and draw it.

    with record() as trace:
        for batch in trace.batches(loader):
            with stage("compute"):
                train(batch)
    print(trace.summary())
    trace.timeline()

A `Trace` combines three packages: `measure.spans` records and computes, `measure.hook` follows a
loader and `measure.picture` draws.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keepfed.measure.spans import Clock, SampleIds, SpanLog, Summary, activate, summarize

if TYPE_CHECKING:
    from keepfed.measure.picture import Timeline


class Trace(SpanLog):
    """Spans of one run and the ledger of its samples.

    `spans` are sorted by start. Their times are nanoseconds of `time.perf_counter_ns`. In a run
    that was simulated or read from a file, times begin at 0.
    """

    def batches(self, loader: Iterable[Any], ids: SampleIds | None = None) -> Iterator[Any]:
        """Iterate over `loader` and record the wait for each batch and the work of the workers.

        Args:
            loader: A `DataLoader` of any kind, which stays unchanged, or any other iterable.
                Persistent workers that already ran before the first recording send no spans.
            ids: A key or a function that reads the sample IDs from a batch. The ledger of an
                `IterableDataset` needs it. A map-style dataset uses its indices.

        Raises:
            KeepfedError: If this version of torch does not support recording.
        """
        from keepfed.measure.hook import traced_batches  # imported here, because it needs torch

        return traced_batches(self, loader, ids)

    def summary(self) -> Summary:
        """Return utilization, idle share, AU, stall per stage and the ledger."""
        return summarize(self)

    def timeline(self, *, steps: int | None = None) -> Timeline:
        """Return the interactive timeline, which is a widget in a notebook and SVG elsewhere.

        Args:
            steps: Number of steps in the first view. The button *Whole run* shows all steps.
        """
        # Imported here, because a program that only records needs no drawing code.
        from keepfed.measure.picture import Timeline

        return Timeline(self, steps=steps)


@contextmanager
def record(clock: Clock = time.perf_counter_ns, label: str = "") -> Iterator[Trace]:
    """Record everything inside the `with` block. You can read the trace afterwards.

    If you nest recordings, only the innermost one records.

    Args:
        clock: Function that returns nanoseconds, the same in all processes of this machine.
        label: Name of the run, shown in pictures.
    """
    trace = Trace(clock=clock, label=label)
    previous = activate(trace)
    try:
        yield trace
    finally:
        activate(previous)
        trace.close()
