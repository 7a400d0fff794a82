"""Four ways to copy batches to the GPU: how much they overlap with steps, and what arrives."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from course_utils.hardware.gpu import Accelerator, HostClock, checksum, timed_accelerator
from course_utils.stories.lecture import Finding
from keepfed.formatting import percent
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.spans import hidden_share
from keepfed.measure.trace import Trace, record

BATCHES, BATCH = 8, 32
Design = Callable[[Iterable[Any]], Iterable[Any]]


def run() -> Finding:
    """Train on random images of shape (3, 224, 224) with each design."""
    rng, shape = torch.Generator().manual_seed(0), (BATCH, 3, 224, 224)
    batches = [torch.randint(256, shape, dtype=torch.uint8, generator=rng) for _ in range(BATCHES)]
    gpu, clock = timed_accelerator("RTX 3090", step_ms=0.5)
    traces, table = {}, [["", "copying overlapped", "batches right", "GPU busy"]]
    for name, design in designs(gpu).items():
        traces[name], right = train(gpu, clock, design, batches)
        hidden, busy = hidden_share(traces[name].spans), traces[name].summary().utilisation
        table.append([name, percent(hidden), f"{right} of {BATCHES}", percent(busy)])
    (_, *plain), _, (_, *unsynced), (_, *ours) = table[1:]
    return Finding(
        f"If the loop copies, {plain[0]} of the copying overlaps with steps, and the GPU is busy "
        f"{plain[2]} of the time. On a separate stream {unsynced[0]} overlaps, but if the step "
        f"does not wait for the copy, {unsynced[1]} batches are right. If it waits for an "
        f"event, {ours[0]} overlaps, {ours[1]} batches are right, and the GPU is busy {ours[2]} of "
        "the time.",
        traces,
        table,
    )


def designs(gpu: Accelerator) -> dict[str, Design]:
    """Return the ways to copy batches to `gpu`, by name."""
    copies = gpu.Stream()

    def upload(batch: Any) -> Any:
        return gpu.upload(batch, non_blocking=True)

    def upload_on_side_stream(batch: Any) -> Any:
        with gpu.stream(copies):
            return upload(batch)

    return {
        "copied in the loop": lambda batches: map(upload, batches),
        "one ahead, same stream": lambda batches: one_ahead(upload, batches),
        "one ahead, without a wait": lambda batches: one_ahead(upload_on_side_stream, batches),
        "CudaPrefetcher": lambda batches: CudaPrefetcher(batches, gpu),
    }


def one_ahead(copy: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    """Launch the copy of each batch before yielding the previous batch."""
    ready = None
    for batch in batches:
        ready, before = copy(batch), ready
        if before is not None:
            yield before
    if ready is not None:
        yield ready


def train(
    gpu: Accelerator, clock: HostClock, design: Design, batches: list[torch.Tensor]
) -> tuple[Trace, int]:
    """Return the trace of an epoch, and the number of batches that the steps read correctly."""
    pinned, found = list(gpu.pinned(batches)), []
    with record(clock=clock) as trace:
        for batch in design(trace.batches(pinned)):
            found.append(gpu.step(batch).item())
    wanted = [checksum([batch]).item() for batch in batches]
    return trace, sum(a == b for a, b in zip(found, wanted, strict=True))
