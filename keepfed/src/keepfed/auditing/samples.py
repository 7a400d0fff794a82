"""Identify samples by their content, and find NaN, in the process that builds a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from keepfed.batches import leaves

UNSEEN = 0  # fingerprint of a sample whose content has no known type
MAX_VALUES = 512  # values of an array that count, in equal steps


class Nan(NamedTuple):
    """NaN in an array of a batch."""

    array: int  # place of the array in the batch
    bad: int  # values that are NaN
    size: int  # values of the array
    rows: list[int]  # samples of the batch that have some


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


def find_nan(arrays: Sequence[NDArray[Any]], count: int) -> Nan | None:
    """Return the first array of a batch of `count` samples that contains NaN."""
    for place, array in enumerate(arrays):
        if array.dtype.kind != "f" or not array.size:
            continue
        # The smallest of some numbers is NaN if one of them is. Their sum may overflow.
        if (least := np.minimum.reduce(array, None)) != least:
            nans = np.isnan(array)
            by_row = array.ndim > 0 and len(array) == count
            rows = nans.reshape(count, -1).any(1).nonzero()[0].tolist() if by_row else range(count)
            return Nan(place, int(nans.sum()), array.size, [*rows])
    return None


def class_of(arrays: Sequence[NDArray[Any]], count: int) -> int | None:
    """Return the label of all samples of a batch, None if there are several or it is unknown."""
    labels = next(
        (a for a in reversed(arrays) if a.dtype.kind in "iu" and a.shape == (count,)), None
    )
    if labels is None or count < 2 or labels.item(0) != labels.item(-1):
        return None
    return int(labels[0]) if (labels == labels[0]).all() else None
