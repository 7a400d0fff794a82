"""One interface to a real and to an emulated accelerator.

    gpu = get_accelerator()                    # the CUDA device, or an emulated one that says so
    copies = gpu.Stream()
    with gpu.stream(copies):
        batch = gpu.upload(gpu.pin(batch), non_blocking=True)
        done = copies.record_event()
    gpu.current_stream().wait_event(done)
    print(gpu.step(batch).item())

Streams and events have the names and the meaning of `torch.Stream` and `torch.Event`, so that
code moves to CUDA as it is. On the emulated device a missing wait shows every time; on a real one
it may go well for weeks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from course_utils.hardware.gpu.batches import PinnedBatches
from course_utils.hardware.gpu.presets import PRESETS
from course_utils.hardware.gpu.smi import Smi

if TYPE_CHECKING:
    from course_utils.hardware.gpu.clock import HostClock


class Event(Protocol):
    """A mark in a stream that other streams and the host can wait for."""

    def record(self, stream: Any = None) -> None:
        """Put the mark behind what was launched on `stream` (default: the current one)."""

    def wait(self, stream: Any = None) -> None:
        """Hold back what is launched on `stream` from now on until the mark is passed."""

    def synchronize(self) -> None:
        """Block the host until the mark is passed."""

    def query(self) -> bool:
        """Tell whether the mark is passed."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds from this mark to `end_event` (both `enable_timing=True`)."""


class Stream(Protocol):
    """A queue of copies and kernels that run one after the other."""

    def record_event(self, event: Any = None) -> Any:
        """Record `event` (or a new one) here and return it."""

    def wait_event(self, event: Any) -> None:
        """Hold back what is launched here from now on until `event` is passed."""

    def wait_stream(self, stream: Any) -> None:
        """Hold back what is launched here from now on until `stream` has done what it has now."""

    def synchronize(self) -> None:
        """Block the host until everything launched here is finished."""

    def query(self) -> bool:
        """Tell whether everything launched here is finished."""


class Loss(Protocol):
    """The result of a step, which may still be running."""

    def item(self) -> float:
        """Block the host until the step is finished; return the checksum of what it read."""

    def __float__(self) -> float:
        """Wait, as `item` does."""


class Accelerator(Protocol):
    """A device that copies batches and computes steps beside the host."""

    emulated: bool
    name: str
    step_ms: float

    def Stream(self) -> Any:
        """Make a stream."""

    def Event(self, *, enable_timing: bool = False) -> Any:
        """Make an event."""

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Make `stream` the current one of this thread inside the `with` block."""

    def current_stream(self) -> Any:
        """Return the stream that this thread launches on."""

    def synchronize(self) -> None:
        """Block the host until everything launched is finished."""

    def upload(self, batch: Any, *, non_blocking: bool = False) -> Any:
        """Copy the tensors of a batch, however nested, to the device; leave the rest as it is.

        `non_blocking=True` returns at once if the tensors are pinned.
        """

    def step(self, batch: Any, *, ms: float | None = None, occupancy: float = 1.0) -> Loss:
        """Launch a training step on `batch` and return at once.

        Args:
            batch: uploaded tensors, nested; the step reads them all.
            ms: how long it takes; default `step_ms`.
            occupancy: share of the device's multiprocessors that it keeps busy.
        """

    def launch(
        self, function: Callable[..., Any], *buffers: Any, ms: float, occupancy: float = 1.0
    ) -> Any:
        """Launch `function(*buffers)`, which returns new tensors, e.g. an augmentation.

        On CUDA it takes as long as it takes; `ms` and `occupancy` are for the emulated device.
        """

    def pin(self, batch: Any) -> Any:
        """Return a copy of `batch` in pinned host memory; making it takes the host some time."""

    def pinned(self, batches: Iterable[Any]) -> PinnedBatches:
        """Hand over the batches of a loader in pinned memory, as `pin_memory=True` does on CUDA.

        When recording: `for batch in gpu.pinned(trace.batches(loader))`.
        """

    def is_pinned(self, batch: Any) -> bool:
        """Tell whether all tensors of `batch` are in pinned host memory."""

    def memory_allocated(self) -> int:
        """Return the bytes of device memory in use."""

    def max_memory_allocated(self) -> int:
        """Return the most bytes that were in use at a time."""

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
    import torch

    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}; use one of: {', '.join(PRESETS)}.")
    if emulate is False and not torch.cuda.is_available():
        raise RuntimeError("There is no CUDA device here; leave out emulate=False to emulate one.")
    figures = PRESETS[preset]
    if emulate or not torch.cuda.is_available():
        from course_utils.hardware.gpu.emulated import EmulatedAccelerator

        if clock is None:
            return EmulatedAccelerator(figures, step_ms=step_ms)
        return EmulatedAccelerator(
            figures, step_ms=step_ms, clock=clock, sleep_until=clock.sleep_until
        )
    from course_utils.hardware.gpu.cuda import CudaAccelerator

    return CudaAccelerator(step_ms=figures.step_ms if step_ms is None else step_ms)
