"""Measure the size of a batch, and the time to pickle it and to copy it to a device."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Sequence
from typing import Any

import torch

# Before torch 2.9, `torch.accelerator` is missing or has no statistics, so only CUDA counts.
ACCELERATOR: Any = getattr(torch, "accelerator", torch.cuda)
if not hasattr(ACCELERATOR, "memory_stats"):
    ACCELERATOR = torch.cuda


def measure_batch(batch: Any) -> tuple[list[torch.Tensor], int, float]:
    """Return the tensors of `batch`, its bytes, and the CPU seconds to pickle the rest.

    The time includes unpickling. Tensors are excluded, because workers send them in shared memory.
    If a batch cannot be pickled, only its tensors count.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    begun = time.thread_time()
    try:
        pickler.dump(batch)
        file.seek(0)
        _Unpickler(file).load()
        pickled, took = file.tell(), time.thread_time() - begun
    except Exception:  # pickling objects of an unknown class may raise anything
        pickled, took = 0, 0.0
    return pickler.tensors, pickled + sum(tensor.nbytes for tensor in pickler.tensors), took


class _Pickler(pickle.Pickler):
    """A pickler that collects the tensors instead of pickling them."""

    def __init__(self, file: io.BytesIO, protocol: int):
        super().__init__(file, protocol)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, thing: Any) -> int | None:
        if not isinstance(thing, torch.Tensor):
            return None
        self.tensors.append(thing)
        return len(self.tensors)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, number: Any) -> None:
        """Replace each tensor by None."""


def copy_s(tensors: Sequence[torch.Tensor], device: torch.device) -> float:
    """Return the seconds to copy `tensors` to `device`, as the best of three.

    The tensors are copied one at a time, pinned or not, while nothing else runs.
    """
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        copies = [tensor.to(device, copy=True) for tensor in tensors]
        if device.type != "cpu":
            ACCELERATOR.synchronize()
        took.append(time.perf_counter() - begun)
        del copies
    return min(took)
