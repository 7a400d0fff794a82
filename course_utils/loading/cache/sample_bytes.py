"""Turn a sample into bytes, and back into a sample of its own."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any

import torch


def to_bytes(sample: Any) -> bytes:
    """Return a sample as bytes: anything that can be pickled.

    A tensor takes the way of an array, which is many times faster than that of torch, and a view
    goes without the rest of its storage.
    """
    buffer = BytesIO()
    _Pickler(buffer, protocol=5).dump(sample)
    return buffer.getvalue()


def from_bytes(content: bytes | memoryview) -> Any:
    """Return a new sample that shares no memory with the bytes."""
    return pickle.loads(content)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor:
            try:
                return torch.from_numpy, (obj.numpy(),)
            except (RuntimeError, TypeError):  # what NumPy does not have: gradients, bfloat16, CUDA
                return NotImplemented
        return NotImplemented
