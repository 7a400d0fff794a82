"""Inspect a batch: count its Python objects, and find smaller dtypes for its tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from keepfed.batches import leaves
from keepfed.measure.records import Contents

MAX_VALUES = 65_536  # values of a tensor that are inspected


def contents_of(batch: Any) -> Contents:
    """Return the contents of `batch`, computed with NumPy only."""
    tensors, objects = list[torch.Tensor](), 0
    for leaf in leaves(batch):
        if isinstance(leaf, torch.Tensor):
            tensors.append(leaf)
        else:
            is_array = isinstance(leaf, np.ndarray) and leaf.dtype == object
            objects += leaf.size if is_array else 1
    found = [(tensor.nbytes, *_narrower(tensor)) for tensor in tensors]
    whole = sum(nbytes for nbytes, _, _ in found)
    if not whole:
        return Contents(objects, "", 1.0)
    left = sum(nbytes * share for nbytes, _, share in found)
    _, name, _ = max(found)
    return Contents(objects, name, left / whole)


def _narrower(tensor: torch.Tensor) -> tuple[str, float]:
    """Return a smaller dtype that can hold a tensor, and the share of bytes that remains."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return "", 1.0
    try:
        values = tensor.detach().numpy()
    except (TypeError, RuntimeError):  # NumPy does not support bfloat16 and some kinds of tensors
        return "", 1.0
    size = values.itemsize
    values = values.ravel()[:: 1 + values.size // MAX_VALUES]
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            return "", 1.0
        if _are_bytes(values):
            return "uint8", 1 / size
        if values.min() >= 0 and values.max() <= 1 and _are_bytes(255 * values):
            return "uint8 (times 255)", 1 / size
        return ("float32", 4 / size) if size > 4 else ("", 1.0)
    if values.dtype.kind in "iu" and size > 1:
        for kind in (np.uint8, np.int16, np.int32):
            limits, bytes_each = np.iinfo(kind), np.dtype(kind).itemsize
            if bytes_each < size and limits.min <= values.min() and values.max() <= limits.max:
                return np.dtype(kind).name, bytes_each / size
    return "", 1.0


def _are_bytes(values: NDArray[Any]) -> bool:
    """Return whether the values are integers from 0 to 255, as in images."""
    nearest = np.rint(values)
    in_range = nearest.min() >= 0 and 1 < nearest.max() <= 255
    return bool(in_range and np.abs(values - nearest).max() < 1e-3)
