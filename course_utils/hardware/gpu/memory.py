"""Memory of the emulated device: counted exactly, and filled when CUDA would fill it.

A copy from pinned memory reads its source only when the host waits for the copy or for an operation
that depends on it. If you overwrite the source earlier, the new data arrive.

A kernel reads poison (NaN, or bytes 0xA5) instead of the data

- if its stream has not waited for the copy or kernel that writes the data, or
- if the tensor was dropped while a kernel on a different stream may still read it, and a new tensor
  reuses its memory (`record_stream` prevents this).
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from typing import Protocol

import torch

from course_utils.hardware.gpu.streams import Driver, EmulatedStream, Known, Operation, learn


class Poisonable(Protocol):
    """A result that becomes garbage if its input was garbage."""

    poisoned: bool


class Allocation:
    """A piece of device memory and the streams that use it."""

    def __init__(self, nbytes: int, home: EmulatedStream):
        self.nbytes = nbytes
        self.home = home  # stream that allocated it
        self.recorded: list[EmulatedStream] = []  # see DeviceTensor.record_stream
        self.free_ns = 0  # time from which it can be reused after its tensor was dropped
        self._readers: list[tuple[Operation, weakref.ref[Poisonable]]] = []

    @property
    def is_shared(self) -> bool:
        """Whether a different stream may still be reading it."""
        return bool(self._readers)

    def read(self, reader: Operation, result: Poisonable) -> None:
        """Record that the kernel `reader` computes `result` from this memory."""
        if reader.stream != self.home.number:
            self._readers = [r for r in self._readers if not r[0].is_known(self.home.known)]
            self._readers.append((reader, weakref.ref(result)))

    def overwrite(self, known: Known) -> None:
        """Poison results of readers that may still run, as far as the new owner knows."""
        for reader, reference in self._readers:
            result = reference()
            safe = reader.is_known(known) or any(s.number == reader.stream for s in self.recorded)
            if result is not None and not safe:
                result.poisoned = True


class Content:
    """The data in an allocation."""

    def __init__(self, data: torch.Tensor, allocation: Allocation, written: Operation, batch: int):
        self.data = data
        self.allocation = allocation
        self.written = written  # copy or kernel that writes the data
        self.batch = batch  # index of the batch in the trace
        self.poisoned = False

    def read(self, reader: Operation, result: Poisonable) -> None:
        """Record that the kernel `reader` computes `result` from this content."""
        if self.poisoned or not self.written.is_known(reader.known):
            result.poisoned = True
        self.allocation.read(reader, result)


class Download:
    """A copy to the host that was not waited for: until then its tensor contains garbage."""

    def __init__(self, content: Content, copy: Operation):
        self.poisoned = False
        self.tensor = poison(content.data)
        self._content, self._copy = content, copy
        content.read(copy, self)

    def arrive(self, known: Known) -> bool:
        """Fill the tensor if the host, which knows `known`, may read it; return whether it may."""
        arrived = self._copy.is_known(known)
        if arrived and not (self.poisoned or self._content.poisoned):
            self.tensor.copy_(self._content.data)
        return arrived


class Memory:
    """The device's memory: its allocations, and copies that were not waited for."""

    def __init__(self, name: str, capacity: int, driver: Driver):
        self.name, self.capacity = name, capacity
        self.used = self.peak = self.reserved = 0
        self._kept: Counter[int] = Counter()  # per stream: bytes reserved but free
        self._driver = driver
        self._dropped: deque[Allocation] = (
            deque()
        )  # finalizers may run in any thread, so only append
        self._busy: list[Allocation] = []  # dropped, but a recorded stream still uses it
        self._free: list[Allocation] = []  # reused by the next tensor of its stream
        self._borrowed: weakref.WeakSet[Content] = weakref.WeakSet()
        self._downloads: list[Download] = []
        self._blocks = HostBlocks()

    def allocate(self, nbytes: int, stream: EmulatedStream) -> Allocation:
        """Allocate `nbytes` on `stream`, reusing memory freed there first.

        Raises:
            torch.OutOfMemoryError: If not enough memory is free.
        """
        self.collect()
        if self.used + nbytes > self.capacity and self._busy:
            self._driver.clock.sleep_until(max(piece.free_ns for piece in self._busy))
            self.collect()
        if self.used + nbytes > self.capacity:
            raise torch.OutOfMemoryError(
                f"The {self.name} has {self.capacity / 2**30:.3g} GiB, of which "
                f"{self.used / 2**30:.3g} are in use. There is no space for {nbytes / 2**30:.3g} "
                "more. Use a smaller batch_size, or drop (del) batches you no longer need."
            )
        known = dict(stream.known)
        learn(known, self._driver.known)
        for piece in self._free:
            if piece.home is stream:
                piece.overwrite(known)
        self._free = [piece for piece in self._free if piece.home is not stream]
        self._reserve(nbytes, stream.number)
        self.used += nbytes
        self.peak = max(self.peak, self.used)
        return Allocation(nbytes, stream)

    def _reserve(self, nbytes: int, stream: int) -> None:
        """Use memory kept for the stream, or reserve more, as PyTorch's allocator does."""
        if nbytes <= self._kept[stream]:
            self._kept[stream] -= nbytes
            return
        if self.reserved + nbytes > self.capacity:
            self.reserved = self.used
            self._kept.clear()  # for all streams
        self.reserved += nbytes

    def drop(self, piece: Allocation) -> None:
        """Free the memory of a dropped tensor. Any thread may call this at any time."""
        piece.free_ns = max((stream.tail_ns for stream in piece.recorded), default=0)
        self._dropped.append(piece)

    def collect(self) -> None:
        """Count the memory of dropped tensors as free once no stream uses it any more."""
        while self._dropped:
            self._busy.append(self._dropped.popleft())
        now = self._driver.clock()
        done = [piece for piece in self._busy if piece.free_ns <= now]
        self._busy = [piece for piece in self._busy if piece.free_ns > now]
        self._free += [piece for piece in done if piece.is_shared]
        for piece in done:
            self.used -= piece.nbytes
            self._kept[piece.home.number] += piece.nbytes

    def take(self, content: Content) -> None:
        """Copy the data, which still belong to the host."""
        content.data = self._blocks.copy(content.data)
        weakref.finalize(content, self._blocks.give_back, content.data).atexit = False

    def borrow(self, content: Content) -> None:
        """Keep using the host's data until the host knows that they were copied."""
        self._borrowed.add(content)

    def download(self, content: Content, copy: Operation) -> torch.Tensor:
        """Return the host tensor that `copy` fills once the host has waited for it."""
        self._downloads.append(Download(content, copy))
        return self._downloads[-1].tensor

    def settle(self, known: Known) -> None:
        """Finish the copies that have finished for certain, as far as `known` tells the host.

        The host may then overwrite sources of uploads, and read downloads.
        """
        for content in list(self._borrowed):
            if content.written.is_known(known):
                self.take(content)
                self._borrowed.discard(content)
        self._downloads = [copy for copy in self._downloads if not copy.arrive(known)]


class HostBlocks:
    """Host memory for the contents of the device, reusing blocks of earlier copies.

    The system needs more time to allocate 20 MB of new memory than a GPU needs to read them.
    """

    def __init__(self, *, keep: int = 8):
        """Keep the latest `keep` unused blocks."""
        self._keep = keep
        self._spare: list[torch.Tensor] = []
        self._returned: deque[torch.Tensor] = (
            deque()
        )  # finalizers may run in any thread, so only append

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        """Return a copy of `source`, in a block of up to twice its size; not thread-safe."""
        while self._returned:
            storage = self._returned.popleft().untyped_storage()
            self._spare.append(_bytes(0).set_(storage))
        del self._spare[: -self._keep]
        size = source.nbytes
        fits = [i for i, block in enumerate(self._spare) if size <= block.nbytes <= 2 * size]
        block = self._spare.pop(fits[-1]) if fits else _bytes(size)
        # NumPy copies in this thread. torch would start threads that spin for milliseconds.
        block[:size].numpy()[:] = source.contiguous().view(-1).view(torch.uint8).numpy()
        return block[:size].view(source.dtype).view(source.shape)

    def give_back(self, copy: torch.Tensor) -> None:
        """Take back a copy that is no longer used."""
        self._returned.append(copy)


def _bytes(count: int) -> torch.Tensor:
    # An explicit device, because these bytes must stay on the host whatever the default is.
    return torch.empty(count, dtype=torch.uint8, device="cpu")


def poison(like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape and type as `like`, full of garbage."""
    if like.is_floating_point() or like.is_complex():
        return torch.full_like(like, torch.nan)
    garbage = torch.full((like.nbytes,), 0xA5, dtype=torch.uint8, device="cpu")
    return garbage.view(like.dtype).view(like.shape)


def mark_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same memory that counts as pinned, as do its views.

    Only CUDA can really pin memory.
    """
    # A separate storage object, so that `tensor` itself stays unmarked.
    marked = torch.utils.dlpack.from_dlpack(tensor.detach())
    marked.untyped_storage()._emulated_pinned = True  # type: ignore[attr-defined]
    return marked


def is_pinned(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is page-locked, really or by `mark_pinned`."""
    return is_marked(tensor) or tensor.is_pinned()


def is_marked(tensor: torch.Tensor) -> bool:
    """Return whether `mark_pinned` marked the memory of `tensor`."""
    return hasattr(tensor.untyped_storage(), "_emulated_pinned")
