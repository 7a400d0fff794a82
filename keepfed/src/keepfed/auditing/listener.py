"""Describe each batch in the process that builds it."""

from __future__ import annotations

from array import array as array_of
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from keepfed.auditing.record import UNSEEN, BatchReport, Draws
from keepfed.auditing.worker_state import OpenFiles, epoch_numbers, generator_states
from keepfed.batches import leaves
from keepfed.measure.hook import Listener, attach_report
from keepfed.measure.records import MAIN

MAX_VALUES = 512  # values of an array that count, in equal steps
DRAWS = 2  # first fetches of a worker whose random generators are recorded


class AuditListener(Listener):
    """Describes each batch in the process that builds it, and sends the description along."""

    def __init__(self) -> None:
        """Create a listener in the main process."""
        self.contents = True  # whether to identify the samples by their content
        self.report: BatchReport | None = None  # of the batch that the main process built last
        self._dataset: Any = None  # copy of the worker
        self._worker, self._fetches = MAIN, 0
        self._files: OpenFiles | None = None
        self._indices: array_of[int] | None = None
        self._before: tuple[int, ...] = ()
        self._samples, self._moved = list[Any](), ""

    def worker_started(self, worker_id: int) -> None:
        """Remember the worker and its copy of the dataset."""
        info = get_worker_info()
        self._worker, self._dataset = worker_id, info.dataset if info else None
        self._files = OpenFiles(self._dataset)

    def fetch_begins(self, index: Any) -> None:
        """Copy the indices, and look at what else a worker has."""
        self._indices = _numbers(index)
        if self._files is not None:
            self._fetches += 1
            self._moved = self._files.fetch_begins()
            self._before = generator_states(self._dataset) if self._fetches <= DRAWS else ()

    def samples_made(self, samples: Any) -> None:
        """Keep the samples until they are collated."""
        if self._files is not None:
            self._files.fetch_ends()
        self._samples = list(samples) if isinstance(samples, list) else [samples]

    def batch_made(self, batch: Any) -> Any:
        """Attach the description to the batch, or keep it in the main process."""
        samples, self._samples = self._samples, []
        parts, count = parts_of(batch), len(samples)
        arrays = arrays_in(parts)
        lengths = {len(array) if array.ndim else -1 for array in arrays}
        rows = lengths.pop() if len(lengths) == 1 else -1
        indices = self._indices if len(self._indices or ()) == count else None
        prints = fingerprints(samples, parts) if self.contents or indices is None else None
        draws = None
        if self._before:
            ids = np.asarray(prints if indices is None else indices).tobytes()
            pairs = zip(self._before, generator_states(self._dataset), strict=False)
            moved = ((n, a, b) for n, (a, b) in enumerate(pairs) if a != b)
            draws = Draws(frozenset(moved), ids)
        nones = 0 if rows == count else sum(sample is None for sample in samples)
        nans = rows_with_nan(arrays, count)
        epochs = {} if self._worker == MAIN else epoch_numbers(self._dataset)
        self.report = BatchReport(
            self._worker, count, indices, prints, rows, nones, nans, draws, epochs, self._moved
        )
        return batch if self._worker == MAIN else attach_report(batch, self.report)

    def failed(self, error: Exception) -> None:
        """Leave the batches of this process without a description."""


def _numbers(index: Any) -> array_of[int] | None:
    """Return a copy of the indices of a batch, or None if the dataset is a stream."""
    several = isinstance(index, (list, tuple)) or (isinstance(index, torch.Tensor) and index.ndim)
    try:
        return array_of("q", index if several else [index])
    except (TypeError, ValueError, OverflowError):
        return None


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


def fingerprints(samples: Sequence[Any], parts: Sequence[Any]) -> NDArray[np.int64]:
    """Return a number for each sample that identifies it by its content.

    Args:
        samples: The samples of a batch, before they are collated.
        parts: The parts of the batch. If all are arrays with a row for each sample, the rows are
            read, because that is faster. Otherwise, the samples are read.
    """
    arrays, count = arrays_in(parts), len(samples)
    is_row_wise = all(array.ndim and len(array) == count for array in arrays)
    if not is_row_wise or not arrays or len(arrays) < len(parts):
        return np.array([*map(_fingerprint, samples)], np.int64)
    rows = [array.reshape(count, -1) for array in arrays if array.size]
    some = [row[:, :: -(-row.shape[1] // MAX_VALUES)] for row in rows]
    joined = [np.ascontiguousarray(row).view(np.uint8) for row in some]
    numbers = map(crc32, np.hstack(joined)) if joined else [1] * count  # one call in C for each
    return np.fromiter(numbers, np.int64, count)


def _fingerprint(sample: Any) -> int:
    number = UNSEEN
    for part in leaves(sample):
        if arrays := arrays_in([part]):
            number = crc32(some_of(arrays[0]), number)
        elif isinstance(part, (str, bytes, int, float)):
            number = crc32(repr(part).encode(), number)
        else:
            return UNSEEN  # for example an image of PIL
    return number


def some_of(array: NDArray[Any]) -> bytes:
    """Return some bytes of an array, in equal steps, which hardly takes time."""
    return array.flat[:: array.size // MAX_VALUES + 1].tobytes()


def rows_with_nan(arrays: Sequence[NDArray[Any]], count: int) -> list[int]:
    """Return the samples of a batch of `count` that have NaN, or all if this is unknown."""
    for array in arrays:
        # The smallest of some numbers is NaN if one of them is. Their sum may overflow.
        if array.dtype.kind == "f" and array.size and np.isnan(np.minimum.reduce(array, None)):
            if array.ndim == 0 or len(array) != count:
                return [*range(count)]
            return [*np.isnan(array).reshape(count, -1).any(1).nonzero()[0].tolist()]
    return []
