"""Record a training loop, summarize it and draw it.

    with record() as trace:
        for batch in trace.batches(loader):
            train(batch)
    print(trace.summary())
    trace.timeline()

If nothing marks the steps with `stage("compute")`, the time between two batches counts, on the
device with CUDA events, otherwise in the main process. The step computes at most that long.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from keepfed.measure.kineto import add_kernels, start_profiler
from keepfed.measure.spans import Clock, SampleIds, SpanLog, Summary, activate, summarize

if TYPE_CHECKING:
    from keepfed.measure.hook import StepBounds
    from keepfed.measure.picture import Timeline


class Trace(SpanLog):
    """Spans of one run and the ledger of its samples.

    `spans` are sorted by start. Their times are nanoseconds of `time.perf_counter_ns`. In a run
    that was simulated or read from a file, times begin at 0.
    """

    def batches(self, loader: Iterable[Any], ids: SampleIds | None = None) -> Iterator[Any]:
        """Iterate over `loader` and record the wait for each batch and the work of the workers.

        Args:
            loader: A `DataLoader` of any kind, which stays unchanged, or any other iterable, also a
                prefetcher. Persistent workers that already ran before send no spans.
            ids: A key or a function that reads the sample IDs from a batch. The ledger of an
                `IterableDataset` needs it. A map-style dataset uses its indices.

        Raises:
            KeepfedError: If this version of torch does not support recording.
        """
        from keepfed.measure.hook import traced_batches  # imported here, because it needs torch

        return traced_batches(self, loader, ids, bounds=self._bounds)

    @cached_property
    def _bounds(self) -> StepBounds:
        from keepfed.measure.hook import StepBounds

        return StepBounds(self)

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
def record(
    clock: Clock = time.perf_counter_ns, label: str = "", *, kernels: bool = False
) -> Iterator[Trace]:
    """Record everything inside the `with` block. You can read the trace afterwards.

    If you nest recordings, only the innermost one records.

    Args:
        clock: Function that returns nanoseconds, the same in all processes of this machine.
        label: Name of the run, shown in pictures.
        kernels: Whether torch.profiler also runs, to show the kernels and copies of CUDA, at most
            of a few hundred steps. Raises a KeepfedError without CUDA, or if a profiler runs.
    """
    profiler = start_profiler() if kernels else None
    trace = Trace(clock=clock, label=label)
    previous = activate(trace)
    try:
        yield trace
    finally:
        activate(previous)
        if profiler is not None:
            trace.on_close(partial(add_kernels, trace, profiler))
        trace.close()
