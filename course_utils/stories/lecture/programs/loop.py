"""The training loop shared by the demos."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from course_utils.hardware.gpu import Accelerator
from keepfed.formatting import percent
from keepfed.measure.spans import SampleIds
from keepfed.measure.trace import Trace, record

DISTURBED = " However, the machine was busy with other programs. Run the demo again."


def train(
    gpu: Accelerator, batches: Iterable[Any], *, ids: SampleIds | None = None, steps: int = 10**6
) -> Trace:
    """Run at most `steps` steps that read their loss, and return the trace."""
    with record() as trace:
        for batch in islice(trace.batches(batches, ids), steps):
            gpu.step(gpu.upload(batch)).item()
    return trace


def busy(trace: Trace) -> str:
    """Return the busy share of the GPU as a percentage."""
    return percent(trace.summary().utilization)
