"""The interface of a device to which batches can be prefetched: streams, events and copies.

Streams and events behave like `torch.Stream` and `torch.Event`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class BatchDevice(Protocol):
    """A device that copies batches while the host continues."""

    @property
    def copy_stream(self) -> Any:
        """The stream for prefetched copies. One is enough, since each stream has a memory pool."""

    def Event(self, *, enable_timing: bool = False) -> Any:
        """Make an event. `enable_timing` is required for `elapsed_time`."""

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Make `stream` the current one of this thread inside the `with` block."""

    def current_stream(self) -> Any:
        """Return the stream that this thread launches on."""

    def upload(self, batch: Any, *, non_blocking: bool = False) -> Any:
        """Copy the tensors of a batch. `non_blocking=True` returns at once if they are pinned."""

    def is_pinned(self, batch: Any) -> bool:
        """Return whether all tensors of `batch` are in pinned host memory."""
