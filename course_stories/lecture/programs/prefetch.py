"""Four designs of the copy to the GPU: how much of it hides behind steps, and what arrives."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course_stories.lecture import Finding
from course_utils.hardware.gpu import Accelerator, HostClock, checksum, timed_accelerator
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.spans import hidden_share
from keepfed.measure.trace import Trace, record
from keepfed.words import percent

BATCHES, BATCH = 8, 32
Design = Callable[[Iterable[Any]], Iterable[Any]]


class Images(Dataset[torch.Tensor]):
    """Noise of 3 x 224 x 224."""

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        rng = torch.Generator().manual_seed(index)
        return torch.randint(0, 256, (3, 224, 224), dtype=torch.uint8, generator=rng)


def run() -> Finding:
    """Load an epoch with two workers, then train on it with each design."""
    batches = list(DataLoader(Images(), BATCH, num_workers=2))
    gpu, clock = timed_accelerator("RTX 3090", step_ms=0.5)
    traces, table = {}, [["", "of the copying hidden", "batches right", "GPU busy"]]
    for name, design in designs(gpu).items():
        traces[name], right = train(gpu, clock, design, batches)
        hidden, busy = hidden_share(traces[name].spans), traces[name].summary().utilisation
        table.append([name, percent(hidden), f"{right} of {BATCHES}", percent(busy)])
    (_, *plain), _, (_, *nobody), (_, *ours) = table[1:]
    return Finding(
        f"Copied in the loop, {plain[0]} of the copying is hidden and the GPU is busy {plain[2]}. "
        f"On a stream of its own {nobody[0]} is hidden, but where nobody waits for the copy, "
        f"{says(nobody[1])} right. With an event to wait for: {ours[0]} hidden, {ours[1]} right, "
        f"GPU busy {ours[2]}.",
        traces,
        table,
    )


def says(right: str) -> str:
    """Say how many batches are right, where they are few."""
    return (
        f"none of the {BATCHES} batches is"
        if right.startswith("0 ")
        else f"only {right} batches are"
    )


def designs(gpu: Accelerator) -> dict[str, Design]:
    """Return the ways to bring batches to `gpu`, by name."""
    copies = gpu.Stream()

    def upload(batch: Any) -> Any:
        return gpu.upload(batch, non_blocking=True)

    def unwatched(batch: Any) -> Any:
        with gpu.stream(copies):
            return upload(batch)

    return {
        "copied in the loop": lambda batches: map(upload, batches),
        "one ahead, same stream": lambda batches: one_ahead(upload, batches),
        "one ahead, nobody waits": lambda batches: one_ahead(unwatched, batches),
        "CudaPrefetcher": lambda batches: CudaPrefetcher(batches, gpu),
    }


def one_ahead(copy: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    """Launch the copy of each batch before the one before it is handed over."""
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
    """Return the trace of an epoch, and how many batches the steps have read right."""
    pinned, found = list(gpu.pinned(batches)), []
    with record(clock=clock) as trace:
        for batch in design(trace.batches(pinned)):
            found.append(gpu.step(batch).item())
    wanted = [checksum([batch]).item() for batch in batches]
    return trace, sum(a == b for a, b in zip(found, wanted, strict=True))
