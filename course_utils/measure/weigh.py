"""Find out how large a batch is, and what it costs to send it from one process to another."""

from __future__ import annotations

import io
import pickle
import time
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
