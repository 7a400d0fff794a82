"""Memory of the emulated device: counted exactly, and filled when CUDA would fill it.

A copy from pinned memory reads its source only when the host waits for it or for what depends on
it. A source that is overwritten earlier therefore arrives overwritten.

A kernel reads poison (NaN, or bytes 0xA5) instead of the data

- if its stream has not waited for the copy or kernel that writes them, and
- if the tensor was dropped while the kernel, on another stream than the one it was allocated on,
  may still be running, and its memory went to a new tensor (`record_stream` prevents that).
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from typing import Protocol

import torch

from course_utils.hardware.gpu.streams import Driver, EmulatedStream, Known, Operation, learn


class Spoilable(Protocol):
    """A result that turns to garbage if what it was computed from was garbage."""

    spoilt: bool


class Allocation:
    """A piece of device memory and who works with it."""

    def __init__(self, nbytes: int, home: EmulatedStream):
        self.nbytes = nbytes
        self.home = home  # the stream it was allocated on
        self.recorded: list[EmulatedStream] = []  # see DeviceTensor.record_stream
        self.free_ns = 0  # when it can be used again, once its tensor was dropped
        self._readers: list[tuple[Operation, weakref.ref[Spoilable]]] = []

    @property
    def is_shared(self) -> bool:
        """Whether a stream other than its own may be reading it."""
        return bool(self._readers)

    def read(self, reader: Operation, result: Spoilable) -> None:
        """Note that the kernel `reader` computes `result` from what is here."""
        if reader.stream != self.home.number:
            self._readers = [r for r in self._readers if not r[0].is_known(self.home.known)]
            self._readers.append((reader, weakref.ref(result)))

    def overwrite(self, known: Known) -> None:
        """Spoil the results of readers of whose end the new owner, knowing `known`, is not sure."""
        for reader, reference in self._readers:
            result = reference()
            safe = reader.is_known(known) or any(s.number == reader.stream for s in self.recorded)
            if result is not None and not safe:
                result.spoilt = True


class Content:
    """The data in an allocation."""

    def __init__(self, data: torch.Tensor, allocation: Allocation, written: Operation, batch: int):
        self.data = data
        self.allocation = allocation
        self.written = written  # by this copy or kernel
        self.batch = batch  # number of the batch in the trace
        self.spoilt = False

    def read(self, reader: Operation, result: Spoilable) -> None:
        """Note that the kernel `reader` computes `result` from this."""
        if self.spoilt or not self.written.is_known(reader.known):
            result.spoilt = True
        self.allocation.read(reader, result)


class Download:
    """A copy to the host that nobody has waited for: its tensor is full of garbage until then."""

    def __init__(self, content: Content, copy: Operation):
        self.spoilt = False
        self.tensor = poison(content.data)
        self._content, self._copy = content, copy
        content.read(copy, self)

    def arrive(self, known: Known) -> bool:
        """Fill the tensor if the host, knowing `known`, may read it; return whether it may."""
        arrived = self._copy.is_known(known)
        if arrived and not (self.spoilt or self._content.spoilt):
            self.tensor.copy_(self._content.data)
        return arrived


class Memory:
    """The device's memory: what is allocated, and the copies that have not been waited for."""

    def __init__(self, name: str, capacity: int, driver: Driver):
        self.name, self.capacity = name, capacity
        self.used = self.peak = self.reserved = 0
        self._kept: Counter[int] = Counter()  # by stream, free bytes of what is reserved
        self._driver = driver
        self._dropped: deque[Allocation] = deque()  # finalizers may run anywhere: only append
        self._busy: list[Allocation] = []  # dropped, but a recorded stream still works on it
        self._free: list[Allocation] = []  # to be overwritten by the next tensor of its stream
        self._borrowed: weakref.WeakSet[Content] = weakref.WeakSet()
        self._downloads: list[Download] = []
        self._blocks = HostBlocks()

    def allocate(self, nbytes: int, stream: EmulatedStream) -> Allocation:
        """Take `nbytes` for `stream`, first of all what was freed there.

        Raises:
            torch.OutOfMemoryError: if so much is not free.
        """
        self.collect()
        if self.used + nbytes > self.capacity and self._busy:
            self._driver.clock.sleep_until(max(piece.free_ns for piece in self._busy))
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
        self._reserve(nbytes, stream.number)
        self.used += nbytes
        self.peak = max(self.peak, self.used)
        return Allocation(nbytes, stream)

    def _reserve(self, nbytes: int, stream: int) -> None:
        """Take what the stream has kept, else more of the device, as PyTorch's allocator does."""
        if nbytes <= self._kept[stream]:
            self._kept[stream] -= nbytes
            return
        if self.reserved + nbytes > self.capacity:
            self.reserved = self.used
            self._kept.clear()  # of all streams
        self.reserved += nbytes

    def drop(self, piece: Allocation) -> None:
        """Give back what nobody has a tensor of any more; any thread may do so at any time."""
        piece.free_ns = max((stream.tail_ns for stream in piece.recorded), default=0)
        self._dropped.append(piece)

    def collect(self) -> None:
        """Count the memory of dropped tensors as free once nothing works on it any more."""
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
        """Copy the data, which belong to the host."""
        content.data = self._blocks.copy(content.data)
        weakref.finalize(content, self._blocks.give_back, content.data).atexit = False

    def borrow(self, content: Content) -> None:
        """Leave the data with the host until it knows that they were copied."""
        self._borrowed.add(content)

    def download(self, content: Content, copy: Operation) -> torch.Tensor:
        """Return a host tensor that `copy` fills, which shows only to a host that waited for it."""
        self._downloads.append(Download(content, copy))
        return self._downloads[-1].tensor

    def settle(self, known: Known) -> None:
        """Finish the copies, in both directions, of whose end the host, knowing `known`, is sure.

        It may overwrite the sources of copies to the device, and read the copies to the host.
        """
        for content in list(self._borrowed):
            if content.written.is_known(known):
                self.take(content)
                self._borrowed.discard(content)
        self._downloads = [copy for copy in self._downloads if not copy.arrive(known)]


class HostBlocks:
    """Host memory for what is on the device: copies of tensors, made in the memory of earlier ones.

    The system takes longer to hand out 20 MB of new memory than a GPU takes to fetch them.
    """

    def __init__(self, *, keep: int = 8):
        """Keep up to `keep` blocks that nobody uses, the latest."""
        self._keep = keep
        self._spare: list[torch.Tensor] = []
        self._returned: deque[torch.Tensor] = deque()  # finalizers may run anywhere: only append

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        """Return a copy of `source`, in a block of up to twice its size; not for threads."""
        while self._returned:
            storage = self._returned.popleft().untyped_storage()
            self._spare.append(_bytes(0).set_(storage))
        del self._spare[: -self._keep]
        size = source.nbytes
        fits = [i for i, block in enumerate(self._spare) if size <= block.nbytes <= 2 * size]
        block = self._spare.pop(fits[-1]) if fits else _bytes(size)
        # By numpy, in this thread: torch would start others, which then spin for milliseconds.
        block[:size].numpy()[:] = source.contiguous().view(-1).view(torch.uint8).numpy()
        return block[:size].view(source.dtype).view(source.shape)

    def give_back(self, copy: torch.Tensor) -> None:
        """Take back a copy that nobody will use any more."""
        self._returned.append(copy)


def _bytes(count: int) -> torch.Tensor:
    # A default device must not move what stands for the device's memory off the host.
    return torch.empty(count, dtype=torch.uint8, device="cpu")


def poison(like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape and type as `like`, full of garbage."""
    if like.is_floating_point() or like.is_complex():
        return torch.full_like(like, torch.nan)
    garbage = torch.full((like.nbytes,), 0xA5, dtype=torch.uint8, device="cpu")
    return garbage.view(like.dtype).view(like.shape)


def mark_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same memory that passes for pinned, and its views too.

    Really pinned memory can be had only with CUDA.
    """
    # A storage of its own, so that `tensor` stays as it was.
    marked = torch.utils.dlpack.from_dlpack(tensor.detach())
    marked.untyped_storage()._emulated_pinned = True  # type: ignore[attr-defined]
    return marked


def is_pinned(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` is page-locked, really or by `mark_pinned`."""
    return hasattr(tensor.untyped_storage(), "_emulated_pinned") or tensor.is_pinned()
