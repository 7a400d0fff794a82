"""Identify samples by their content, and find NaN, in the process that builds a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from keepfed.batches import leaves

UNSEEN = 0  # fingerprint of a sample whose content has no known type
MAX_VALUES = 512  # values of an array that count, in equal steps


def parts_of(batch: Any) -> Sequence[Any]:
    """Return the parts of a batch that are no containers."""
    plain = type(batch) in (list, tuple) and all(type(part) is torch.Tensor for part in batch)
    return batch if plain else leaves(batch)  # `leaves` takes a tenth of a small fetch


def arrays_in(parts: Sequence[Any]) -> list[NDArray[Any]]:
    """Return the tensors and arrays among `parts` as NumPy arrays of the same memory."""
    arrays = map(_as_array, parts)
    return [array for array in arrays if array is not None]


def _as_array(part: Any) -> NDArray[Any] | None:
    if isinstance(part, torch.Tensor):
        try:
            part = (part.detach() if part.requires_grad else part).numpy()
        except (TypeError, RuntimeError):  # on a device, sparse, or of a type that NumPy lacks
            return None
    return part if isinstance(part, np.ndarray) and not part.dtype.hasobject else None


def fingerprints(samples: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return a number for each sample that identifies it by its content.

    Args:
        samples: The samples of a batch, before they are collated.
        arrays: The arrays of the batch. Those with a row for each sample are read, because that
            is faster. Without any, the samples are read.
    """
    count = len(samples)
    rows = [array for array in arrays if array.ndim and len(array) == count]
    if rows and count:
        return _checksums(rows, count)
    numbers = np.full(count, UNSEEN, np.int64)
    for place, sample in enumerate(samples):
        parts = leaves(sample)
        words = [repr(part) for part in parts if isinstance(part, (str, bytes, int, float))]
        if inside := arrays_in(parts) or [np.array(words)] * bool(words):
            numbers[place] = _checksums([array[None] for array in inside], 1)[0]
    return numbers


def _checksums(arrays: Sequence[NDArray[Any]], count: int) -> NDArray[np.int64]:
    rows = []
    for array in arrays:
        if array.size:
            values = array.reshape(count, -1)
            some = values[:, :: -(-values.shape[1] // MAX_VALUES)]
            rows.append(np.ascontiguousarray(some).view(np.uint8))
    # one call in C for all samples
    return np.fromiter(map(crc32, np.hstack(rows)) if rows else [1] * count, np.int64, count)


def rows_with_nan(arrays: Sequence[NDArray[Any]], count: int) -> list[int]:
    """Return the samples of a batch of `count` that have NaN, or all if this is unknown."""
    for array in arrays:
        # The smallest of some numbers is NaN if one of them is. Their sum may overflow.
        if array.dtype.kind == "f" and array.size and np.isnan(np.minimum.reduce(array, None)):
            if array.ndim == 0 or len(array) != count:
                return [*range(count)]
            return [*np.isnan(array).reshape(count, -1).any(1).nonzero()[0].tolist()]
    return []
