"""Detect that a loader writes the next batch into the memory of the one that it served."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import torch

from keepfed.auditing.samples import MAX_VALUES, arrays_in, parts_of


class ServedMemory:
    """Compares a batch before and after the next one is made.

    A loop may change its batch during a step. So only what `next()` changes counts, and only in the
    main thread, because a thread that prefetches runs during the step.
    """

    def __init__(self) -> None:
        self._served = dict[int, weakref.ref[Any]]()  # arrays of the last batch by their address
        self._is_shared = False  # whether a batch had the address of one that the loop still has
        self._copies = list[tuple[Any, bytes]]()  # arrays of the last batch, and what they had

    def before_next(self) -> None:
        """Copy a part of the last batch, if its memory was used again before."""
        if self._is_shared and threading.current_thread() is threading.main_thread():
            alive = (reference() for reference in self._served.values())
            self._copies = [(part, _some_of(part)) for part in alive if part is not None]

    def has_changed(self, batch: Any) -> bool:
        """Return whether `next()`, which returned `batch`, changed the batch before."""
        changed = any(_some_of(part) != before for part, before in self._copies)
        self._copies = []
        last, self._served = self._served, {}
        for part in parts_of(batch):
            if address := _address_of(part):
                self._served[address] = weakref.ref(part)
                self._is_shared |= address in last and last[address]() is not None
        return changed


def _address_of(part: Any) -> int:
    if isinstance(part, torch.Tensor):
        plain = part.layout == torch.strided and part.device.type == "cpu"
        return part.data_ptr() if plain and type(part) is torch.Tensor else 0
    return int(part.__array_interface__["data"][0]) if isinstance(part, np.ndarray) else 0


def _some_of(part: Any) -> bytes:
    arrays = [array.reshape(-1) for array in arrays_in([part])]
    return b"".join(array[:: array.size // MAX_VALUES + 1].tobytes() for array in arrays)
