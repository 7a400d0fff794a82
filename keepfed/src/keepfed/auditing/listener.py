"""Describe each batch in the process that builds it."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from keepfed.auditing.record import BatchReport, Draws
from keepfed.auditing.samples import arrays_in, fingerprints, parts_of, rows_with_nan
from keepfed.auditing.worker_state import OpenFiles, epoch_numbers, generator_states
from keepfed.measure.hook import Listener, attach_report
from keepfed.measure.records import MAIN

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
        self._indices: array[int] | None = None
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
        arrays, count = arrays_in(parts_of(batch)), len(samples)
        lengths = {len(array) if array.ndim else -1 for array in arrays}
        rows = lengths.pop() if len(lengths) == 1 else -1
        indices = self._indices if len(self._indices or ()) == count else None
        prints = fingerprints(samples, arrays) if self.contents or indices is None else None
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


def _numbers(index: Any) -> array[int] | None:
    """Return a copy of the indices of a batch, or None if the dataset is a stream."""
    several = isinstance(index, (list, tuple)) or (isinstance(index, torch.Tensor) and index.ndim)
    try:
        return array("q", index if several else [index])
    except (TypeError, ValueError, OverflowError):
        return None
