"""Torch's own names on the emulated GPU: the text that runs on CUDA, without CUDA.

    with emulated_cuda(gpu):
        copies = torch.cuda.Stream()
        with torch.cuda.stream(copies):
            batch = batch.pin_memory().to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)

What is missing raises an error that names it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import Tensor

from course_utils.hardware.gpu.emulated import DeviceTensor
from course_utils.hardware.gpu.memory import is_marked
from keepfed.device.cuda import batch_number, numbered

CUDA, IS_PINNED = torch.cuda, Tensor.is_pinned
TO: Any = Tensor.to
PIN_MEMORY: Any = Tensor.pin_memory
MISSING = (
    "The emulated GPU does not have {}. It copies batches with .to('cuda'), and computes "
    "gpu.step(batch) and gpu.launch(function, batch, ms=1)."
)
_one_thread = threading.RLock()


@contextmanager
def emulated_cuda(gpu: Any) -> Iterator[None]:
    """Let `torch.cuda`, `Tensor.to("cuda")` and `pin_memory()` act on `gpu` inside the block.

    On a real GPU the block only adds the copies to the trace. Torch's own code never sees the
    emulated names, so an optimizer or a DataLoader works as on a machine without CUDA.

    Raises:
        RuntimeError: If another thread is inside such a block.
    """
    if not _one_thread.acquire(blocking=False):
        raise RuntimeError("Another thread is inside emulated_cuda(). Wait until it has left.")
    with ExitStack() as undo:
        undo.callback(_one_thread.release)
        for owner, name, value in _emulated(gpu) if gpu.emulated else _recorded(gpu):
            undo.enter_context(patch.object(owner, name, value))
        yield


def _emulated(gpu: Any) -> Iterator[tuple[Any, str, Any]]:
    def to(tensor: Tensor, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
        device, dtype, non_blocking, layout = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type != "cuda":
            return TO(tensor, *args, copy=copy, **kwargs)
        if isinstance(tensor, torch.nn.Parameter):
            raise RuntimeError(MISSING.format("a model"))
        _check(gpu, device)
        kept = {"dtype": dtype or tensor.dtype, "memory_format": layout or torch.preserve_format}
        return gpu.upload(TO(tensor, **kept), non_blocking=non_blocking)

    yield DeviceTensor, "as_torch", True
    yield torch, "cuda", EmulatedCuda(gpu)
    yield CUDA, "_lazy_init", _no_tensors

    def pin_memory(tensor: Tensor, *_: Any) -> Any:
        if is_marked(tensor):
            return tensor
        return PIN_MEMORY(tensor) if _caller() == "torch" else gpu.pin(tensor)  # a DataLoader pins

    yield Tensor, "to", to
    yield Tensor, "cuda", lambda tensor, device="cuda", **kwargs: to(tensor, device, **kwargs)
    yield Tensor, "is_pinned", lambda tensor, *_: is_marked(tensor) or IS_PINNED(tensor)
    yield Tensor, "pin_memory", pin_memory


def _recorded(gpu: Any) -> Iterator[tuple[Any, str, Any]]:
    def to(tensor: Tensor, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
        is_upload = device is not None and device.type == "cuda" and not tensor.is_cuda
        if not is_upload or _caller() == "keepfed":  # which records its own copies
            return TO(tensor, *args, copy=copy, **kwargs)
        number = batch_number()
        with gpu.span("copy", "transfer", number):
            return numbered(TO(tensor, *args, copy=copy, **kwargs), number)

    yield Tensor, "to", to
    yield Tensor, "cuda", lambda tensor, device="cuda", **kwargs: to(tensor, device, **kwargs)


class EmulatedCuda:
    """The module `torch.cuda` in the block. Callers inside torch get the real one."""

    def __init__(self, gpu: Any):
        self.stream, self.is_available = lambda stream: gpu.stream(stream), lambda: True
        self.current_device, self.is_initialized = lambda: gpu.index, lambda: False
        self.Event = lambda enable_timing=False, **_: gpu.Event(enable_timing=enable_timing)
        for name in ("Stream", "current_stream", "synchronize", "memory_allocated"):
            setattr(self, name, _of_device(gpu, name))

    def __getattribute__(self, name: str) -> Any:
        return getattr(CUDA, name) if _caller() == "torch" else object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(MISSING.format(f"torch.cuda.{name}"))


def _caller() -> str:
    """Return the package whose code has called the function that asks."""
    return str(sys._getframe(2).f_globals.get("__name__")).partition(".")[0]


def _of_device(gpu: Any, name: str) -> Callable[..., Any]:
    """Return a method of `gpu` with an optional device, as in torch."""

    def checked(device: Any = None, **_: Any) -> Any:
        _check(gpu, device)
        return getattr(gpu, name)()

    return checked


def _check(gpu: Any, device: Any) -> None:
    index = device if isinstance(device, int | None) else torch.device(device).index
    if index not in (None, gpu.index):
        raise RuntimeError(f"The emulated GPU here is cuda:{gpu.index}. There is no cuda:{index}.")


def _no_tensors() -> NoReturn:
    raise RuntimeError(MISSING.format("tensors that torch creates there"))
