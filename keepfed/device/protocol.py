"""The interface of a device: streams, events, copies and memory.

Streams and events have the names and the meaning of `torch.Stream` and `torch.Event`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from keepfed.device.batches import PinnedBatches


class BatchDevice(Protocol):
    """A device that copies batches while the host goes on."""

    emulated: bool
    name: str

    def Stream(self) -> Any:
        """Hand out a stream: there are 32 of them, and the 33rd is the first one again."""

    @property
    def copy_stream(self) -> Any:
        """The one stream of this device for copies ahead: memory is kept for each stream apart."""

    def Event(self, *, enable_timing: bool = False) -> Any:
        """Make an event; `enable_timing` for those between which `elapsed_time` is asked for."""

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

    def memory_reserved(self) -> int:
        """Return the bytes taken from the device: in use, or kept for the next of their stream."""
