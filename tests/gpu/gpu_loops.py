"""Training loops for the GPU, and for the emulated device with the times of the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import Any

import torch

from course_utils.hardware.gpu import PRESETS, Accelerator, EmulatedAccelerator
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.trace import Trace, record

SIDE = 224
TOLERANCE = 0.03  # maximum difference in utilization between both devices
STEPS = 25


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A training loop, and the way its batches are copied: `mode`."""

    name: str
    load_ms: float
    step_ms: float
    batch_mb: int
    mode: str  # "pageable", "pinned", "overlapped", "prefetcher" or "augmented"
    sync: bool = True
    augment_ms: float = 0  # for the emulated device only

    @property
    def kernels(self) -> int:
        """Number of kernels per batch: the step, and in one mode the augmentation."""
        return 2 if self.mode == "augmented" else 1


# batches that are small enough for the host memory of the emulated device
LOOPS = (
    Loop(name="naive", load_ms=40, step_ms=20, batch_mb=16, mode="pageable"),
    # smaller, as the emulated device copies pageable memory with one thread, at half the speed
    Loop(name="short-steps-pageable", load_ms=5, step_ms=10, batch_mb=8, mode="pageable"),
    Loop(name="short-steps-pinned", load_ms=5, step_ms=10, batch_mb=32, mode="pinned"),
    Loop(name="short-steps-overlapped", load_ms=5, step_ms=10, batch_mb=32, mode="overlapped"),
    Loop(name="loss-not-read", load_ms=15, step_ms=20, batch_mb=32, mode="overlapped", sync=False),
    Loop(name="short-steps-prefetcher", load_ms=5, step_ms=10, batch_mb=32, mode="prefetcher"),
    Loop(
        name="prefetcher-late", load_ms=15, step_ms=20, batch_mb=32, mode="prefetcher", sync=False
    ),
    Loop(name="gpu-augmentation", load_ms=5, step_ms=10, batch_mb=19, mode="augmented"),
)


def run_loop(gpu: Accelerator, loop: Loop) -> Trace:
    batch = images(loop.batch_mb) if loop.mode == "augmented" else noise(loop.batch_mb)
    if loop.mode != "pageable":
        batch = gpu.pin(batch)
    augment = _augmentation(gpu, batch) if loop.mode == "augmented" else None
    # warm up without recording, because the first kernel and allocation take longer
    _train(gpu, _load(batch, loop, steps=4), loop, augment)
    gpu.synchronize()
    with record(label=loop.name) as trace:
        _train(gpu, trace.batches(_load(batch, loop, steps=STEPS)), loop, augment)
        gpu.synchronize()
    return trace


def _load(batch: torch.Tensor, loop: Loop, *, steps: int) -> Iterator[torch.Tensor]:
    for _ in range(steps):
        time.sleep(loop.load_ms / 1e3)
        yield batch


def _train(
    gpu: Accelerator, batches: Iterator[Any], loop: Loop, augment: Callable[..., Any] | None
) -> None:
    for batch in _on_device(gpu, batches, loop):
        if augment:  # the copy had bytes, a quarter of the size of floats
            batch = gpu.launch(augment, batch, ms=loop.augment_ms)
        loss = gpu.step(batch, ms=loop.step_ms)
        if loop.sync:
            loss.item()


def _on_device(gpu: Accelerator, batches: Iterator[Any], loop: Loop) -> Iterable[Any]:
    if loop.mode in ("pageable", "pinned"):
        return (gpu.upload(batch, non_blocking=loop.mode == "pinned") for batch in batches)
    return _overlapped(gpu, batches) if loop.mode == "overlapped" else CudaPrefetcher(batches, gpu)


def _overlapped(gpu: Accelerator, batches: Iterator[Any]) -> Iterator[Any]:
    copies, ahead = gpu.Stream(), None
    for batch in chain(batches, [None]):
        staged, ahead = ahead, None if batch is None else stage(gpu, copies, batch)
        if staged:
            uploaded, done = staged
            gpu.current_stream().wait_event(done)
            uploaded.record_stream(gpu.current_stream())
            yield uploaded


def _augmentation(gpu: Any, batch: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    if gpu.emulated:  # the CPU would compute the values, which takes real time
        return lambda batch: batch[:0]
    from course_utils.loading.images import Augment  # imports image libraries too

    augment = Augment(size=SIDE)
    draws = augment.draw(batch.shape, generator=torch.Generator().manual_seed(0)).to(gpu.device)
    return lambda batch: augment(batch, draws)


def stage(gpu: Accelerator, copies: Any, batch: Any) -> tuple[Any, Any]:
    """Start a copy on the stream `copies`, and return the tensor and the event of its end."""
    with gpu.stream(copies):
        return gpu.upload(batch, non_blocking=True), copies.record_event()


def noise(megabytes: float, seed: int = 0) -> torch.Tensor:
    return torch.randn(round(megabytes * 1e6 / 4), generator=torch.Generator().manual_seed(seed))


def images(megabytes: float) -> torch.Tensor:
    """Return random images, uint8, shape (batch, 3, 224, 224)."""
    count = round(megabytes * 1e6 / (3 * SIDE * SIDE))
    random = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=random)


def lengths(trace: Trace, lane: str) -> list[float]:  # in ms, for the spans of a lane
    return [span.duration_ns / 1e6 for span in trace.spans if span.lane == lane]


def calibrated(trace: Trace, loop: Loop) -> tuple[EmulatedAccelerator, Loop]:
    """Return an emulated device and a loop with the times of `trace`."""
    gb_s = loop.batch_mb / median(lengths(trace, "copy"))
    name = trace.note.removeprefix("emulated ")
    preset = replace(PRESETS["H200"], name=name, pinned_gb_s=gb_s, pageable_gb_s=gb_s)
    # augmentation and step alternate
    *augmentation, step = (
        median(lengths(trace, "gpu")[first :: loop.kernels]) for first in range(loop.kernels)
    )
    twin = replace(loop, step_ms=step, augment_ms=sum(augmentation))
    return EmulatedAccelerator(preset, step_ms=step), twin


def compare(
    gpu: Accelerator, loop: Loop, keep: Callable[[Trace, Trace], None] = lambda *traces: None
) -> str:
    """Run `loop` on both devices, pass on both traces, and check that they agree."""
    real = run_loop(gpu, loop)
    emulated = run_loop(*calibrated(real, loop))
    keep(real, emulated)
    busy, same = (trace.summary().utilization for trace in (real, emulated))
    words = f"busy for {busy:.1%}, emulated {same:.1%}"
    assert abs(busy - same) <= TOLERANCE, words
    return words
