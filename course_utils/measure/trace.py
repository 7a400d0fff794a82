"""Record a training loop, and look at it.

with record() as trace:
for batch in trace.batches(loader):
with stage("compute"):
train(batch)
print(trace.summary())
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from course_utils.measure.spans import Clock, SampleIds, SpanLog, activate

if TYPE_CHECKING:
    from course_utils.measure.picture import Timeline
    from course_utils.measure.spans import Summary


class Trace(SpanLog):
    """A log of spans that knows how to follow a loader, and how to show itself."""

    def batches(self, loader: Iterable[Any], ids: SampleIds | None = None) -> Iterator[Any]:
        """Iterate over `loader`, recording the wait for each batch and what the workers did for it.

        Args:
            loader: a `DataLoader` of any kind (it is left as it was) or any other iterable.
                Persistent workers that ran before they were first recorded send no spans.
            ids: how to read the sample ids from a batch: a key, or a function of the batch. Needed
                for the ledger of an `IterableDataset`; a map-style dataset has its indices.
        """
        from course_utils.measure.spans import traced_batches

        return traced_batches(self, loader, ids)

    def summary(self) -> Summary:
        """Return utilisation, idle share, AU, stall per stage and the ledger."""
        from course_utils.measure.spans import summarise

        return summarise(self)

    def timeline(self) -> Timeline:
        """Return the interactive picture."""
        from course_utils.measure.picture import Timeline

        return Timeline(self)


@contextmanager
def record(clock: Clock = time.perf_counter_ns, label: str = "") -> Iterator[Trace]:
    """Record everything inside the `with` block; the trace stays readable afterwards."""
    trace = Trace(clock=clock, label=label)
    previous = activate(trace)
    try:
        yield trace
    finally:
        activate(previous)
        trace.close()
