"""What is on the emulated device: garbage to all who read it too early.

A kernel reads poison (NaN, or bytes 0xA5) instead of the data

- if its stream has not waited for the copy or kernel that writes them, and
- if the tensor was dropped while the kernel, on another stream than the one it was allocated on,
  may still be running, and its memory went to a new tensor (`record_stream` prevents that).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

from course_utils.hardware.gpu.checksum import checksum
from course_utils.hardware.gpu.streams import Driver, EmulatedStream, Known, Operation


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


Download = Callable[[Content], torch.Tensor]


class DeviceTensor:
    """A tensor on the emulated device, read by `gpu.step` and `gpu.launch` or with `cpu()`."""

    def __init__(self, content: Content, device: str, download: Download):
        self.content = content
        self.shape, self.dtype = content.data.shape, content.data.dtype
        self.nbytes = content.data.nbytes
        self.device = device
        self._download = download

    def record_stream(self, stream: EmulatedStream) -> None:
        """When this tensor is dropped, keep its memory until `stream` has done its work so far."""
        self.content.allocation.recorded.append(stream)

    def cpu(self) -> torch.Tensor:
        """Return a copy in host memory, after the current stream has got there."""
        return self._download(self.content)

    def numel(self) -> int:
        """Return the number of elements."""
        return self.shape.numel()

    def size(self, dim: int) -> int:
        """Return the length along one dimension."""
        return self.shape[dim]

    def __len__(self) -> int:
        """Return the length along the first dimension."""
        return self.shape[0]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"An emulated device tensor has no {name!r}: compute with gpu.launch(function, tensor, "
            "ms=...) or look at the values with tensor.cpu()."
        )

    def __repr__(self) -> str:
        """Show shape and type, not the values: they may not be there yet."""
        return f"DeviceTensor({tuple(self.shape)}, {self.dtype}, {self.device!r})"


class EmulatedLoss:
    """The result of a step: a checksum of what the kernel read, NaN if it read garbage."""

    def __init__(self, driver: Driver, kernel: Operation, contents: list[Content]):
        self.spoilt = False
        self._driver, self._kernel, self._contents = driver, kernel, contents
        self._value: float | None = None
        for content in contents:
            content.read(kernel, self)

    def item(self) -> float:
        """Block the host until the kernel is finished and return the checksum."""
        self._driver.learn(self._kernel.known)
        self.compute()  # before the wait, which then hides what it costs
        self._driver.sleep_until(self._kernel.end_ns)
        return float("nan") if self.spoilt or self._value is None else self._value

    def compute(self) -> None:
        """Read the data, once."""
        if self._value is None:
            self.spoilt |= any(content.spoilt for content in self._contents)
            self._value = checksum([content.data for content in self._contents]).item()
            self._contents = []

    def __float__(self) -> float:
        """Wait, as `item` does."""
        return self.item()

    def __repr__(self) -> str:
        """Tell how to get at the value, without waiting for it."""
        return "<loss on the device: item() waits for it>"


def poison(like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape and type as `like`, full of garbage."""
    if like.is_floating_point() or like.is_complex():
        return torch.full_like(like, torch.nan)
    garbage = torch.full((like.nbytes,), 0xA5, dtype=torch.uint8)
    return garbage.view(like.dtype).view(like.shape)
