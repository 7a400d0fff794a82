"""The interface of a device: streams, events, copies and memory.

Streams and events behave like `torch.Stream` and `torch.Event`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from keepfed.batches import PinnedBatches


class BatchDevice(Protocol):
    """A device that copies batches while the host continues."""

    emulated: bool
    name: str

    def Stream(self) -> Any:
        """Return a stream. There are 32 streams, so the 33rd call returns the first one again."""

    @property
    def copy_stream(self) -> Any:
        """The stream for prefetched copies. One is enough, since each stream has a memory pool."""

    def Event(self, *, enable_timing: bool = False) -> Any:
        """Make an event. `enable_timing` is required for `elapsed_time`."""

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Make `stream` the current one of this thread inside the `with` block."""

    def current_stream(self) -> Any:
        """Return the stream that this thread launches on."""

    def synchronize(self) -> None:
        """Block the host until everything launched is finished."""

    def upload(self, batch: Any, *, non_blocking: bool = False) -> Any:
        """Copy the tensors of a batch. `non_blocking=True` returns at once if they are pinned."""

    def launch(
        self, function: Callable[..., Any], *buffers: Any, ms: float, occupancy: float = 1.0
    ) -> Any:
        """Launch `function(*buffers)`, which returns new tensors, such as an augmentation.

        Only the emulated device uses `ms` and `occupancy`.
        """

    def pin(self, batch: Any) -> Any:
        """Return a copy of `batch` in pinned host memory. The host makes this copy itself."""

    def pinned(self, batches: Iterable[Any]) -> PinnedBatches:
        """Return the batches of a loader in pinned memory, as `pin_memory=True` does on CUDA.

        While recording, write `for batch in gpu.pinned(trace.batches(loader))`.
        """

    def is_pinned(self, batch: Any) -> bool:
        """Return whether all tensors of `batch` are in pinned host memory."""

    def memory_allocated(self) -> int:
        """Return the bytes of device memory in use."""

    def max_memory_allocated(self) -> int:
        """Return the peak of the bytes in use."""

    def memory_reserved(self) -> int:
        """Return the bytes held on the device: in use, or kept for reuse on their stream."""
