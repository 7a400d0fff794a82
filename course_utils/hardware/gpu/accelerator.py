"""One interface to a real and to an emulated accelerator.

    gpu = get_accelerator()                    # the CUDA device, or an emulated one that says so
    copies = gpu.Stream()
    with gpu.stream(copies):
        batch = gpu.upload(gpu.pin(batch), non_blocking=True)
        done = copies.record_event()
    gpu.current_stream().wait_event(done)
    print(gpu.step(batch).item())

Streams and events have the names and the meaning of `torch.Stream` and `torch.Event`, so that code
moves to CUDA as it is. On the emulated device a missing wait shows every time; on a real one it may
go well for weeks.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Protocol

import torch

from course_utils.hardware.clock import HostClock, RealClock, VirtualClock
from course_utils.hardware.gpu.cuda import CudaAccelerator
from course_utils.hardware.gpu.emulated import PRESETS, EmulatedAccelerator
from course_utils.hardware.gpu.loss import Loss
from course_utils.hardware.gpu.smi import Smi
from keepfed.device import BatchDevice


class Accelerator(BatchDevice, Protocol):
    """A device that also computes training steps of a chosen length."""

    step_ms: float

    def step(self, batch: Any, *, ms: float | None = None, occupancy: float = 1.0) -> Loss:
        """Launch a training step on `batch` and return at once.

        Args:
            batch: uploaded tensors, nested; the step reads them all.
            ms: how long it takes; default `step_ms`.
            occupancy: share of the device's multiprocessors that it keeps busy.
        """

    def smi(self) -> Smi:
        """Return what nvidia-smi shows, beside what it does not show."""


def get_accelerator(
    preset: str = "RTX 3090",
    *,
    step_ms: float | None = None,
    emulate: bool | None = None,
    clock: HostClock | None = None,
) -> Accelerator:
    """Return the CUDA device if there is one, else an emulated one.

    Args:
        preset: kind of GPU to emulate: "RTX 3090", "A100" or "H200".
        step_ms: how long `step` takes; by default what the preset would need for 0.6 TFLOP.
        emulate: True to emulate even beside a CUDA device, False to insist on CUDA.
        clock: the time of an emulated device; by default that of this machine.

    Raises:
        ValueError: if there is no such preset.
        RuntimeError: if CUDA is insisted on and there is none.
    """
    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}; use one of: {', '.join(PRESETS)}.")
    figures = PRESETS[preset]
    has_cuda = torch.cuda.is_available()
    if emulate is False and not has_cuda:
        raise RuntimeError("There is no CUDA device here; leave out emulate=False to emulate one.")
    if emulate or not has_cuda:
        return EmulatedAccelerator(figures, step_ms=step_ms, clock=clock)
    return CudaAccelerator(step_ms=figures.step_ms if step_ms is None else step_ms)


def rank_accelerator(preset: str = "RTX 3090", *, step_ms: float | None = None) -> Accelerator:
    """Return the GPU of this rank, and make it the current one.

    torchrun sets the number of each process on this machine, and how many there are. If the batch
    system shows each rank a single GPU (CUDA_VISIBLE_DEVICES), the rank takes that one. If there
    are more ranks than GPUs otherwise, all ranks get an emulated one and print a warning, since two
    ranks cannot share a GPU in NCCL.
    """
    rank, ranks = (int(os.environ.get(f"LOCAL_{name}", "0")) for name in ("RANK", "WORLD_SIZE"))
    if not torch.cuda.is_available():
        return get_accelerator(preset, step_ms=step_ms, emulate=True)
    there = torch.cuda.device_count()
    assigned = there == 1 and "CUDA_VISIBLE_DEVICES" in os.environ
    if there < ranks and not assigned:
        warnings.warn(
            f"Rank {rank} uses an emulated GPU, because {ranks} ranks cannot share {there} GPUs. "
            "Start at most one rank per GPU.",
            stacklevel=2,
        )
        return get_accelerator(preset, step_ms=step_ms, emulate=True)
    torch.cuda.set_device(0 if assigned else rank)
    return get_accelerator(preset, step_ms=step_ms)


def timed_accelerator(
    preset: str = "RTX 3090", *, step_ms: float | None = None, emulate: bool | None = None
) -> tuple[Accelerator, HostClock]:
    """Return what `get_accelerator` does, and a clock to record its traces with.

        gpu, clock = timed_accelerator("RTX 3090", step_ms=3)
        with record(clock=clock) as trace:
            gpu.step(gpu.upload(batch)).item()

    Without a GPU nobody waits: an emulated wait only puts the clock forward. What Python computes
    in between takes no time on it, so that the copies and steps of a picture are exact.

    Raises:
        ValueError: if there is no such preset.
        RuntimeError: if CUDA is insisted on (`emulate=False`) and there is none.
    """
    clock = VirtualClock()
    gpu = get_accelerator(preset, step_ms=step_ms, emulate=emulate, clock=clock)
    return gpu, clock if gpu.emulated else RealClock()
