"""The training loop that the demos have in common."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from course_utils.hardware.gpu import Accelerator
from keepfed.measure.spans import SampleIds
from keepfed.measure.trace import Trace, record
from keepfed.words import percent

DISTURBED = " But the machine was busy with something else meanwhile: run it again."


def train(
    gpu: Accelerator, batches: Iterable[Any], *, ids: SampleIds | None = None, steps: int = 10**6
) -> Trace:
    """Take at most so many steps, each of which reads its loss; return the trace."""
    with record() as trace:
        for batch in islice(trace.batches(batches, ids), steps):
            gpu.step(gpu.upload(batch)).item()
    return trace


def busy(trace: Trace) -> str:
    """Return the share of the time in which the GPU computed, as it is read."""
    return percent(trace.summary().utilisation)
