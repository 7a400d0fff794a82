"""Memory of the emulated device: exactly counted, and filled when CUDA would fill it.

A copy from pinned memory reads its source only when the host waits for it or for what depends on
it. A source that is overwritten earlier therefore arrives overwritten.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import torch

from course_utils.hardware.gpu.contents import Allocation, Content, DeviceTensor, Download
from course_utils.hardware.gpu.host_blocks import HostBlocks
from course_utils.hardware.gpu.streams import Driver, EmulatedStream, Known, learn


class Memory:
    """The device's memory: what is allocated, and the copies that have not been waited for."""

    def __init__(self, name: str, capacity: int, driver: Driver, download: Download):
        self.name, self.capacity = name, capacity
        self._download = download
        self.used = self.peak = 0
        self._driver = driver
        self._dropped: deque[Allocation] = deque()  # finalizers may run anywhere: only append
        self._busy: list[Allocation] = []  # dropped, but a recorded stream still works on it
        self._free: list[Allocation] = []  # to be overwritten by the next tensor of its stream
        self._borrowed: weakref.WeakSet[Content] = weakref.WeakSet()
        self._blocks = HostBlocks()
        driver.on_learning = self._settle

    def allocate(self, nbytes: int, stream: EmulatedStream) -> Allocation:
        """Take `nbytes` for `stream`, first of all what was freed there.

        Raises:
            torch.OutOfMemoryError: if so much is not free.
        """
        self.collect()
        if self.used + nbytes > self.capacity and self._busy:
            self._driver.sleep_until(max(piece.free_ns for piece in self._busy))
            self.collect()
        if self.used + nbytes > self.capacity:
            raise torch.OutOfMemoryError(
                f"The {self.name} has {self.capacity / 2**30:.3g} GiB, of which "
                f"{self.used / 2**30:.3g} are in use, and {nbytes / 2**30:.3g} more do not fit: "
                "use a smaller batch_size or drop (del) the batches you no longer need."
            )
        known = dict(stream.known)
        learn(known, self._driver.known)
        for piece in self._free:
            if piece.home is stream:
                piece.overwrite(known)
        self._free = [piece for piece in self._free if piece.home is not stream]
        self.used += nbytes
        self.peak = max(self.peak, self.used)
        return Allocation(nbytes, stream)

    def take(self, content: Content) -> None:
        """Copy the data, which belong to the host."""
        content.data = self._blocks.copy(content.data)
        weakref.finalize(content, self._blocks.give_back, content.data).atexit = False

    def borrow(self, content: Content) -> None:
        """Leave the data with the host until it knows that they were copied."""
        self._borrowed.add(content)

    def handle(self, content: Content) -> DeviceTensor:
        """Return the tensor that keeps allocated memory as long as it is used."""
        tensor = DeviceTensor(content, self.name, self._download)
        weakref.finalize(tensor, self._drop, content.allocation).atexit = False
        return tensor

    def collect(self) -> None:
        """Count the memory of dropped tensors as free once nothing works on it any more."""
        while self._dropped:
            self._busy.append(self._dropped.popleft())
        now = self._driver.clock()
        done = [piece for piece in self._busy if piece.free_ns <= now]
        self._busy = [piece for piece in self._busy if piece.free_ns > now]
        self._free += [piece for piece in done if piece.is_shared]
        self.used -= sum(piece.nbytes for piece in done)

    def _drop(self, piece: Allocation) -> None:
        piece.free_ns = max((stream.tail_ns for stream in piece.recorded), default=0)
        self._dropped.append(piece)

    def _settle(self, known: Known) -> None:
        """Take the data of finished copies, which the host may overwrite from now on."""
        for content in list(self._borrowed):
            if content.written.is_known(known):
                self.take(content)
                self._borrowed.discard(content)


def mark_pinned(leaf: Any) -> Any:
    """Return a tensor over the same memory that passes for pinned, and its views too.

    Really pinned memory can be had only with CUDA.
    """
    if not isinstance(leaf, torch.Tensor):
        return leaf
    # A storage of its own, so that `leaf` stays as it was.
    marked = torch.utils.dlpack.from_dlpack(leaf.detach())
    marked.untyped_storage()._emulated_pinned = True  # type: ignore[attr-defined]
    return marked


def is_pinned(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` is page-locked, really or by `mark_pinned`."""
    return hasattr(tensor.untyped_storage(), "_emulated_pinned") or tensor.is_pinned()
