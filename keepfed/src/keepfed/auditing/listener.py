"""Describe each batch in the process that builds it."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from keepfed.auditing.record import BatchReport, Draws
from keepfed.auditing.samples import arrays_in, class_of, find_nan, fingerprints, parts_of
from keepfed.auditing.worker_state import InheritedFiles, epoch_numbers, generator_states
from keepfed.measure.hook import Listener, attach_report
from keepfed.measure.records import MAIN

DRAWS = 2  # first fetches of a worker whose random generators are recorded


class AuditListener(Listener):
    """Describes each batch in the process that builds it, and sends the description along."""

    def __init__(self, dataset: Any, workers: int):
        """Create a listener in the main process. A worker has its own copy of the dataset."""
        self.dataset, self.worker, self._fetches = dataset, MAIN, 0
        self.contents = True  # whether to identify the samples by their content
        self.report: BatchReport | None = None  # of the batch that the main process built last
        self._files = InheritedFiles() if workers else None
        self._indices: array[int] | None = None
        self._before: tuple[int, ...] = ()
        self._samples, self._moved = list[Any](), ""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "dataset": None}

    def worker_started(self, worker_id: int) -> None:
        """Remember the worker and its copy of the dataset."""
        info = get_worker_info()
        self.worker, self.dataset = worker_id, info.dataset if info else None
        if self._files is not None:
            self._files.worker_started(self.dataset)

    def fetch_begins(self, index: Any) -> None:
        """Copy the indices, and look at what else a worker has."""
        self._indices = _numbers(index)
        if self._files is not None:
            self._fetches += 1
            self._moved = self._files.fetch_begins()
            self._before = generator_states(self.dataset) if self._fetches <= DRAWS else ()

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
            states = zip(
                range(len(self._before)), self._before, generator_states(self.dataset), strict=False
            )
            draws = Draws(frozenset(state for state in states if state[1] != state[2]), ids)
        nones = 0 if rows == count else sum(sample is None for sample in samples)
        numbers = {} if self.worker == MAIN else epoch_numbers(self.dataset)
        values = find_nan(arrays, count), class_of(arrays, count)
        about = self.worker, count, indices, prints, rows, nones
        self.report = BatchReport(*about, *values, draws, numbers, self._moved)
        return batch if self.worker == MAIN else attach_report(batch, self.report)

    def failed(self, error: Exception) -> None:
        """Leave the batches of this process without a description."""


def _numbers(index: Any) -> array[int] | None:
    """Return a copy of the indices of a batch, or None if the dataset is a stream."""
    several = isinstance(index, (list, tuple)) or (isinstance(index, torch.Tensor) and index.ndim)
    try:
        return array("q", index if several else [index])
    except (TypeError, ValueError, OverflowError):
        return None
