"""Training loops that run on the GPU and, with the times measured there, on the emulated device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from course_utils.hardware.accelerator import Accelerator
from course_utils.hardware.accelerator_presets import PRESETS
from course_utils.hardware.emulated import EmulatedAccelerator
from course_utils.measure.trace import Trace, record

TOLERANCE = 0.03  # by which the utilisation of the two devices may differ
STEPS = 25


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A training loop; `mode` is how its batches get to the device."""

    name: str
    load_ms: float
    step_ms: float
    batch_mb: int
    mode: str  # "pageable", "pinned" or "overlapped"
    sync: bool = True


# Batches small enough for the emulated device to hold them in host memory without delay.
LOOPS = (
    Loop(name="naive", load_ms=40, step_ms=20, batch_mb=16, mode="pageable"),
    Loop(name="short-steps-pageable", load_ms=5, step_ms=10, batch_mb=32, mode="pageable"),
    Loop(name="short-steps-pinned", load_ms=5, step_ms=10, batch_mb=32, mode="pinned"),
    Loop(name="short-steps-overlapped", load_ms=5, step_ms=10, batch_mb=32, mode="overlapped"),
    Loop(name="loss-not-read", load_ms=15, step_ms=20, batch_mb=32, mode="overlapped", sync=False),
)


def run_loop(gpu: Accelerator, loop: Loop) -> Trace:
    """Return the trace of `loop` on `gpu`."""
    batch = noise(loop.batch_mb)
    if loop.mode != "pageable":
        batch = gpu.pin(batch)

    run = _overlapped if loop.mode == "overlapped" else _serial
    # Not recorded: the first use of a kernel and of so much memory takes longer.
    run(gpu, _load(batch, loop, steps=4), loop)
    gpu.synchronize()
    with record(label=loop.name) as trace:
        run(gpu, trace.batches(_load(batch, loop, steps=STEPS)), loop)
        gpu.synchronize()
    return trace


def _load(batch: torch.Tensor, loop: Loop, *, steps: int) -> Iterator[torch.Tensor]:
    for _ in range(steps):
        time.sleep(loop.load_ms / 1e3)
        yield batch


def _serial(gpu: Accelerator, batches: Iterator[Any], loop: Loop) -> None:
    for batch in batches:
        loss = gpu.step(gpu.upload(batch, non_blocking=loop.mode == "pinned"), ms=loop.step_ms)
        if loop.sync:
            loss.item()


def _overlapped(gpu: Accelerator, batches: Iterator[Any], loop: Loop) -> None:
    copies, ahead = gpu.Stream(), None
    for batch in batches:
        staged = stage(gpu, copies, batch)
        if ahead:
            _step(gpu, *ahead, loop)
        ahead = staged
    if ahead:
        _step(gpu, *ahead, loop)


def stage(gpu: Accelerator, copies: Any, batch: Any) -> tuple[Any, Any]:
    """Start a copy on the stream `copies`; return the tensor and the event of its arrival."""
    with gpu.stream(copies):
        return gpu.upload(batch, non_blocking=True), copies.record_event()


def _step(gpu: Accelerator, uploaded: Any, done: Any, loop: Loop) -> None:
    gpu.current_stream().wait_event(done)
    uploaded.record_stream(gpu.current_stream())
    loss = gpu.step(uploaded, ms=loop.step_ms)
    if loop.sync:
        loss.item()


def noise(megabytes: float, seed: int = 0) -> torch.Tensor:
    """Return float32 noise."""
    return torch.randn(round(megabytes * 1e6 / 4), generator=torch.Generator().manual_seed(seed))


def lengths(trace: Trace, lane: str) -> list[float]:
    """Return the milliseconds that each span of `lane` lasted."""
    return [span.duration_ns / 1e6 for span in trace.spans if span.lane == lane]


def calibrated(trace: Trace, loop: Loop) -> EmulatedAccelerator:
    """Return an emulated device with the times that `trace` shows."""
    gb_s = loop.batch_mb / median(lengths(trace, "copy"))
    preset = replace(PRESETS["H200"], pinned_gb_s=gb_s, pageable_gb_s=gb_s)
    return EmulatedAccelerator(preset, step_ms=median(lengths(trace, "gpu")))


def compare(gpu: Accelerator, loop: Loop) -> tuple[bool, Trace, Trace]:
    """Run `loop` on both devices; tell whether they agree."""
    real = run_loop(gpu, loop)
    twin = calibrated(real, loop)
    emulated = run_loop(twin, replace(loop, step_ms=twin.step_ms))
    busy, same = (trace.summary().utilisation for trace in (real, emulated))
    agree = abs(busy - same) <= TOLERANCE
    print(f"  {loop.name:28} {busy:6.1%} {same:6.1%}  {'ok' if agree else 'TOO FAR APART'}")
    return agree, real, emulated
