"""Find out how large a batch is, and what it costs to send it from one process to another."""

from __future__ import annotations

import io
import pickle
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Weight:
    """One batch: its bytes, and the processor seconds that pickling it and back takes."""

    nbytes: int
    pickle_s: float = 0.0  # of all that is no tensor: tensors travel in shared memory


class _Weigher(pickle.Pickler):
    """Pickle all but the tensors, which are counted."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, thing: Any) -> int | None:
        if not isinstance(thing, torch.Tensor):
            return None
        self.tensors.append(thing)
        return len(self.tensors) - 1


class _Unweigher(pickle.Unpickler):
    def persistent_load(self, number: Any) -> None:
        """Put nothing where a tensor was."""


def copy_s(batch: Any, device: torch.device) -> float:
    """Return the seconds that copying the tensors of `batch` to `device` takes, at best of three.

    Copied as they lie there, one after the other, with nothing beside it.
    """
    weigher = _Weigher(io.BytesIO())
    with suppress(Exception):  # whatever a stranger's class does when it is pickled
        weigher.dump(batch)
    return min(_copy_once(weigher.tensors, device) for _ in range(3))


def _copy_once(tensors: list[torch.Tensor], device: torch.device) -> float:
    begun = time.perf_counter()
    copies = [tensor.to(device, copy=True) for tensor in tensors]
    if device.type != "cpu":
        torch.accelerator.synchronize()
    took = time.perf_counter() - begun
    copies.clear()
    return took


def weigh(batch: Any) -> Weight:
    """Return the weight of `batch`; of one that cannot be pickled only its own tensors count."""
    file = io.BytesIO()
    weigher = _Weigher(file)
    begun = time.thread_time()
    try:
        weigher.dump(batch)
        file.seek(0)
        _Unweigher(file).load()
    except Exception:  # whatever a stranger's class does when it is pickled
        return Weight(sum(tensor.nbytes for tensor in weigher.tensors))
    took = time.thread_time() - begun
    return Weight(sum(tensor.nbytes for tensor in weigher.tensors) + file.tell(), took)
