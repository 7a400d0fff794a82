"""Wait for the accelerator of a step, see whether it was used, and time a copy to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from keepfed.batches import tensors
from keepfed.measure.trace import Trace

# Before torch 2.9, `torch.accelerator` is missing or has no statistics, so only CUDA counts.
ACCELERATOR: Any = getattr(torch, "accelerator", torch.cuda)
if not hasattr(ACCELERATOR, "memory_stats"):
    ACCELERATOR = torch.cuda


def wait_for_device(result: Any, trace: Trace, synchronize: Callable[[], Any] | None) -> None:
    """Wait until the device has finished its work, without initializing CUDA.

    A step may return a loss, and reading it waits for the device. An emulated device records the
    time at which it will finish. `synchronize` replaces both.
    """
    if synchronize is not None:
        synchronize()
        return
    cuda = torch.cuda.is_available()
    if torch.cuda.is_initialized() if cuda else ACCELERATOR.is_available():  # type: ignore[no-untyped-call]
        ACCELERATOR.synchronize()
    item = getattr(result, "item", None)
    if callable(item) and getattr(result, "numel", lambda: 1)() == 1:
        item()
    time.sleep(max(0, trace.last_ns - time.perf_counter_ns()) / 1e9)


def memory_figures() -> dict[str, int]:
    """Return the allocator statistics of the accelerator, which change with any work on it.

    The result is empty without an accelerator, before its first use, and without statistics.
    """
    try:
        return dict(ACCELERATOR.memory_stats()) if ACCELERATOR.is_available() else {}
    except RuntimeError:
        return {}


def copy_s(batch: Any) -> float | None:
    """Return the seconds to copy the tensors of `batch` to the device, as the best of three.

    The result is None if the device cannot hold them.
    """
    device = getattr(ACCELERATOR, "current_accelerator", lambda: torch.device("cuda"))()
    took_s = []
    # A Mac GPU has no float64 (TypeError), so the step cannot copy it either. If the model fills
    # the device, there is no memory for a second batch (RuntimeError).
    with suppress(TypeError, RuntimeError):
        for _ in range(3):
            begun = time.perf_counter()
            copies = [tensor.to(device, copy=True) for tensor in tensors(batch)]
            ACCELERATOR.synchronize()
            took_s.append(time.perf_counter() - begun)
            del copies
    return min(took_s, default=None)
