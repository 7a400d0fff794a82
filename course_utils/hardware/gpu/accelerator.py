"""One interface to a real and an emulated accelerator.

    gpu = get_accelerator()                    # the CUDA device, or an emulated one
    copies = gpu.Stream()
    with gpu.stream(copies):
        batch = gpu.upload(gpu.pin(batch), non_blocking=True)
        done = copies.record_event()
    gpu.current_stream().wait_event(done)
    print(gpu.step(batch).item())

Streams and events have the names and meaning of `torch.Stream` and `torch.Event`, so the code also
runs on CUDA without changes. On the emulated device a missing wait gives a wrong result every time.
On a real device it may go unnoticed for weeks.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from course_utils.hardware.clock import HostClock, RealClock, VirtualClock
from course_utils.hardware.gpu.cuda import CudaAccelerator
from course_utils.hardware.gpu.emulated import PRESETS, EmulatedAccelerator
from course_utils.hardware.gpu.loss import Loss
from course_utils.hardware.gpu.pinned import PinnedBatches
from course_utils.hardware.gpu.smi import Smi
from keepfed.device import BatchDevice


class Accelerator(BatchDevice, Protocol):
    """A device that also computes training steps of a chosen length."""

    emulated: bool
    name: str
    step_ms: float

    def Stream(self) -> Any:
        """Return a stream. There are 32 streams, so the 33rd call returns the first one again."""

    def synchronize(self) -> None:
        """Block the host until everything launched is finished."""

    def launch(self, function: Callable[..., Any], *buffers: Any, ms: float) -> Any:
        """Launch `function(*buffers)`, which returns new tensors, such as an augmentation.

        Only the emulated device uses `ms`.
        """

    def pin(self, batch: Any) -> Any:
        """Return a copy of `batch` in pinned host memory. The host makes this copy itself."""

    def pinned(self, batches: Iterable[Any]) -> PinnedBatches:
        """Return the batches of a loader in pinned memory, as `pin_memory=True` does on CUDA.

        While recording, write `for batch in gpu.pinned(trace.batches(loader))`.
        """

    def memory_allocated(self) -> int:
        """Return the bytes of device memory in use."""

    def max_memory_allocated(self) -> int:
        """Return the peak of the bytes in use."""

    def memory_reserved(self) -> int:
        """Return the bytes held on the device: in use, or kept for reuse on their stream."""

    def step(self, batch: Any, *, ms: float | None = None, occupancy: float = 1.0) -> Loss:
        """Launch a training step on `batch` and return immediately.

        Args:
            batch: Uploaded tensors, nested. The step reads all of them.
            ms: Duration of the step. Default: `step_ms`.
            occupancy: Share of the device's multiprocessors that the step uses.
        """

    def smi(self) -> Smi:
        """Return the output of nvidia-smi, and figures that nvidia-smi does not show."""


def get_accelerator(
    preset: str = "RTX 3090",
    *,
    step_ms: float | None = None,
    emulate: bool | None = None,
    clock: HostClock | None = None,
) -> Accelerator:
    """Return the CUDA device if there is one, otherwise an emulated one.

    Args:
        preset: GPU to emulate: "RTX 3090", "A100" or "H200".
        step_ms: Duration of `step`. Default: the preset's time for 0.6 TFLOP.
        emulate: True to emulate even if there is a CUDA device, False to require CUDA.
        clock: Clock of the emulated device. Default: the clock of this machine.

    Raises:
        ValueError: If there is no such preset.
        RuntimeError: If CUDA is required but not available.
    """
    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}. Use one of: {', '.join(PRESETS)}.")
    figures = PRESETS[preset]
    has_cuda = torch.cuda.is_available()
    if emulate is False and not has_cuda:
        raise RuntimeError("There is no CUDA device here. Omit emulate=False to emulate one.")
    if emulate or not has_cuda:
        return EmulatedAccelerator(figures, step_ms=step_ms, clock=clock)
    return CudaAccelerator(step_ms=figures.step_ms if step_ms is None else step_ms)


def rank_accelerator(*, step_ms: float | None = None) -> Accelerator:
    """Return the GPU of this rank, and make it the current device.

    torchrun sets the local rank of each process and their number on this machine. If the batch
    system shows each rank a single GPU (CUDA_VISIBLE_DEVICES), the rank uses that one. Otherwise,
    if there are more ranks than GPUs, all ranks use an emulated GPU and print a warning, because
    two ranks cannot share a GPU in NCCL.
    """
    rank, ranks = (int(os.environ.get(f"LOCAL_{name}", "0")) for name in ("RANK", "WORLD_SIZE"))
    if not torch.cuda.is_available():
        return get_accelerator(step_ms=step_ms, emulate=True)
    there = torch.cuda.device_count()
    assigned = there == 1 and "CUDA_VISIBLE_DEVICES" in os.environ
    if there < ranks and not assigned:
        warnings.warn(
            f"Rank {rank} uses an emulated GPU, because {ranks} ranks cannot share {there} GPUs. "
            "Start at most one rank per GPU.",
            stacklevel=2,
        )
        return get_accelerator(step_ms=step_ms, emulate=True)
    torch.cuda.set_device(0 if assigned else rank)
    return get_accelerator(step_ms=step_ms)


def timed_accelerator(
    preset: str = "RTX 3090", *, step_ms: float | None = None, emulate: bool | None = None
) -> tuple[Accelerator, HostClock]:
    """Return the result of `get_accelerator`, and a clock for recording its traces.

        gpu, clock = timed_accelerator("RTX 3090", step_ms=3)
        with record(clock=clock) as trace:
            gpu.step(gpu.upload(batch)).item()

    Without a GPU, an emulated wait takes no real time, because it only advances the clock. Python
    code does not advance the clock, so the copies and steps of a timeline are exact.

    Raises:
        ValueError: If there is no such preset.
        RuntimeError: If CUDA is required (`emulate=False`) but not available.
    """
    clock = VirtualClock()
    gpu = get_accelerator(preset, step_ms=step_ms, emulate=emulate, clock=clock)
    return gpu, clock if gpu.emulated else RealClock()
