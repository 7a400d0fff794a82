"""Identify samples by their content, and find NaN, in the process that builds a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from keepfed.batches import leaves

UNSEEN = 0  # fingerprint of a sample whose content has no known type
MAX_ARRAYS = 16  # arrays of a sample that count for its fingerprint
MAX_VALUES = 512  # values of an array that count, in equal steps
# A sum with fixed random weights is as good as a hash here, and a hundred times as fast.
_WEIGHTS = np.random.default_rng(0).integers(
    2**63, size=(MAX_ARRAYS, 4 * MAX_VALUES), dtype=np.uint64
)

_WORD = {2: np.uint16, 4: np.uint32, 8: np.uint32, 16: np.uint32}  # by the bytes of a value


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


def arrays_in(batch: Any) -> list[NDArray[Any]]:
    """Return the tensors and arrays of a batch as NumPy arrays of the same memory."""
    arrays = map(_as_array, parts_of(batch))
    return [array for array in arrays if array is not None]


def _as_array(part: Any) -> NDArray[Any] | None:
    if isinstance(part, np.ndarray):
        return None if part.dtype.hasobject else part
    if not isinstance(part, torch.Tensor):
        return None
    try:
        return part.numpy()
    except (TypeError, RuntimeError):  # for example one with a gradient, or on a device
        pass
    if part.device.type != "cpu" or part.is_nested or part.layout != torch.strided:
        return None
    plain = part.detach().resolve_conj().resolve_neg()
    return np.asarray((plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy())


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
        return _sums(rows, count)
    each = (arrays_in(sample) or _texts(sample) for sample in samples)
    sums = (_sums([np.atleast_1d(a)[None] for a in one], 1)[0] if one else UNSEEN for one in each)
    return np.fromiter(sums, np.int64, count)


def _texts(sample: Any) -> list[NDArray[Any]]:
    texts = [repr(part) for part in leaves(sample) if isinstance(part, str | bytes | int | float)]
    return [np.frombuffer("\n".join(texts).encode(), np.uint8)] if texts else []


def _sums(arrays: Sequence[NDArray[Any]], count: int) -> NDArray[np.int64]:
    sums = np.full(count, 2, np.uint64)  # so that a sample of zeros is not `UNSEEN`
    for place, array in enumerate(arrays[:MAX_ARRAYS]):
        if not array.size:
            continue
        values = array.reshape(count, -1)
        if values.shape[1] > MAX_VALUES or not values.flags.c_contiguous:
            values = np.ascontiguousarray(values[:, :: -(-values.shape[1] // MAX_VALUES)])
        words = values.view(_WORD.get(values.itemsize, np.uint8))[:, : 4 * MAX_VALUES]
        sums += words @ _WEIGHTS[place, : words.shape[1]]
    return (sums >> 1).view(np.int64)


def find_nan(arrays: Sequence[NDArray[Any]], count: int) -> Nan | None:
    """Return the first array of a batch of `count` samples that contains NaN."""
    for place, array in enumerate(arrays):
        if array.dtype.kind != "f" or (total := array.sum()) == total:  # only NaN is not itself
            continue
        if (nans := np.isnan(array)).any():
            by_row = array.ndim > 0 and len(array) == count
            rows = nans.reshape(count, -1).any(1).nonzero()[0] if by_row else range(count)
            return Nan(place, int(nans.sum()), array.size, [int(row) for row in rows])
    return None
