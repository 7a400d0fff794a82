"""Loops that pin or do not, measured on an emulated device: what exercise 09.3 predicts."""

from collections.abc import Iterator

import torch

from course_utils.exercises.nb09.problem import PAGEABLE_GB_S, PRESET, Case
from course_utils.hardware.gpu import Accelerator, HostClock, timed_accelerator


def measure_ms(case: Case) -> float:
    """Return how long a step takes in the long run, on an emulated device that nobody waits for."""
    gpu, clock = timed_accelerator(PRESET.name, step_ms=case.step_ms, emulate=True)
    copies, ends, before = gpu.Stream(), list[int](), None
    for batch in _deliver(case, gpu, clock):
        pinned = gpu.pin(batch) if case.pin == "in the loop" else batch
        with gpu.stream(copies):
            staged = gpu.upload(pinned, non_blocking=True), copies.record_event()
        if before is not None:
            gpu.current_stream().wait_event(before[1])
            gpu.step(before[0]).item()
            ends.append(clock())
        before = staged
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def _deliver(case: Case, gpu: Accelerator, clock: HostClock) -> Iterator[torch.Tensor]:
    """Hand over batches when workers, and the thread that pins, would have them ready."""
    batch = torch.zeros(round(case.mb * 1e6), dtype=torch.uint8)
    (pinned,) = gpu.pinned([batch])
    ready_ms = 0.0
    for count in range(1, 5):
        ready_ms = max(ready_ms, count * case.load_ms)
        if case.pin == "in the loader":
            ready_ms += case.mb / PAGEABLE_GB_S
        clock.sleep_until(round(ready_ms * 1e6))
        yield pinned if case.pin == "in the loader" else batch
