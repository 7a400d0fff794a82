"""Measure the claims of notebook 09 on an emulated device, so independently of this machine."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch

from course_utils.hardware.gpu import checksum, timed_accelerator
from course_utils.stories.prefetchers import SideStream
from course_utils.stories.prefetchers.recordings import CARDS, recordings
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.spans import hidden_share
from keepfed.measure.trace import record

BATCHES, RUNS = 6, 20
Design = Callable[[Any, Iterable[Any]], Iterator[Any]]


def copies_that_let_the_program_go_on() -> set[str]:
    """Return which of the four kinds of copies return before the batch has arrived."""
    gpu, clock = timed_accelerator(emulate=True)
    batch = torch.zeros(24_000_000, dtype=torch.uint8)
    found = set()
    for memory, source in ("pageable", batch), ("pinned", gpu.pin(batch)):
        for non_blocking in False, True:
            gpu.synchronize()
            gpu.upload(source, non_blocking=non_blocking)
            returned = clock()
            gpu.synchronize()
            if clock() > returned:
                found.add(f"{memory}{', non_blocking' if non_blocking else ''}")
    return found


def _train(design: Design, *, late: bool = False) -> tuple[float, int]:
    """Return the percentage of copying that is hidden, and the number of correct batches."""
    gpu, clock = timed_accelerator(step_ms=0.03, emulate=True)
    batches = list(gpu.pinned(torch.randn(60_000) for _ in range(BATCHES)))
    losses = []
    with record(clock=clock) as trace:
        for batch in design(gpu, batches):
            losses.append(gpu.step(batch))
            if not late:
                losses[-1].item()
        found = [loss.item() for loss in losses]
    first = min(span.start_ns for span in trace.spans if span.lane == "gpu")
    later = [span for span in trace.spans if span.start_ns >= first]
    wanted = [checksum([batch]).item() for batch in batches]
    return 100 * hidden_share(later), sum(a == b for a, b in zip(found, wanted, strict=True))


def percent_hidden_on_the_default_stream() -> float:
    """Return the percentage of hidden copying if copies and steps share a stream."""

    def design(gpu: Any, batches: Iterable[Any]) -> Iterator[Any]:
        ready = None
        for batch in [*batches, None]:
            before = ready
            if batch is not None:
                ready = gpu.upload(batch, non_blocking=True)
            if before is not None:
                yield before

    return _train(design)[0]


def right_epochs_without_a_wait() -> int:
    """Count the correct epochs if no step waits for its copy."""
    return sum(_train(_without_wait)[1] == BATCHES for _ in range(RUNS))


def right_epochs_with_losses_read_late() -> int:
    """Count the correct epochs without record_stream, with losses read at the end."""
    return sum(_train(_with_wait, late=True)[1] == BATCHES for _ in range(RUNS))


def _without_wait(gpu: Any, batches: Iterable[Any]) -> Iterator[Any]:
    return iter(SideStream(batches, gpu))


def _with_wait(gpu: Any, batches: Iterable[Any]) -> Iterator[Any]:
    return iter(SideStream(batches, gpu, wait=True))


def percent_hidden_by_ours() -> float:
    """Return the percentage that CudaPrefetcher hides; 0 if a batch is wrong."""
    runs = [_train(_ours, late=run % 2 == 0) for run in range(RUNS)]
    return min(hidden if right == BATCHES else 0.0 for hidden, right in runs)


def gain_where_the_copy_is_as_long_as_the_step() -> float:
    """Return the speed-up by prefetching with fast workers and equally long copy and step."""
    return _pace_ms(_in_the_loop) / _pace_ms(_ours)


def _in_the_loop(gpu: Any, batches: Iterable[Any]) -> Iterator[Any]:
    return (gpu.upload(batch, non_blocking=True) for batch in batches)


def _ours(gpu: Any, batches: Iterable[Any]) -> Iterator[Any]:
    return iter(CudaPrefetcher(batches, gpu))


def _pace_ms(design: Design) -> float:
    gpu, clock = timed_accelerator("RTX 3090", step_ms=4, emulate=True)
    (batch,) = gpu.pinned([torch.zeros(95_600_000, dtype=torch.uint8)])  # its copy takes 4 ms
    ends = []
    for uploaded in islice(design(gpu, [batch] * 7), 6):
        gpu.step(uploaded).item()
        ends.append(clock())
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def points_between_real_and_emulated() -> set[str]:
    """Return how far the busy shares of each recorded card and its emulation differ at most."""
    found = set()
    for card in CARDS:
        busy, same = (
            [trace.summary().utilization for trace in recordings(card, kind)]
            for kind in ("measured", "emulated")
        )
        apart = max(100 * abs(a - b) for a, b in zip(busy, same, strict=True))
        found.add(f"{apart:.1f} points in {len(busy)} loops on the {card}")
    return found
