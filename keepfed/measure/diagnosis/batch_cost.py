"""Weigh a batch: its bytes, what pickling it takes, and what a copy to a device takes."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Sequence
from typing import Any

import torch


def measure_batch(batch: Any) -> tuple[list[torch.Tensor], int, float]:
    """Return the tensors of `batch`, its bytes, and how long all else takes to pickle and back.

    Tensors travel in shared memory. Of a batch that cannot be pickled only its tensors count.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    begun = time.thread_time()
    try:
        pickler.dump(batch)
        file.seek(0)
        _Unpickler(file).load()
        pickled, took = file.tell(), time.thread_time() - begun
    except Exception:  # whatever a stranger's class does when it is pickled
        pickled, took = 0, 0.0
    return pickler.tensors, pickled + sum(tensor.nbytes for tensor in pickler.tensors), took


class _Pickler(pickle.Pickler):
    """Pickle all but the tensors, which are collected."""

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
        """Put nothing where a tensor was."""


def copy_s(tensors: Sequence[torch.Tensor], device: torch.device) -> float:
    """Return the seconds that copying `tensors` to `device` takes, at best of three.

    Copied as they lie there, one after the other, with nothing beside it.
    """
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        copies = [tensor.to(device, copy=True) for tensor in tensors]
        if device.type != "cpu":
            torch.accelerator.synchronize()
        took.append(time.perf_counter() - begun)
        del copies
    return min(took)
