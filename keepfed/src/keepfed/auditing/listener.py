"""Describe each batch in the process that builds it."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from keepfed.auditing.record import BatchReport, Draws
from keepfed.auditing.samples import arrays_in, find_nan, fingerprints
from keepfed.auditing.worker_state import (
    InheritedFiles,
    epoch_numbers,
    generator_states,
    open_files,
)
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
        self._parent_files = open_files() if workers else {}
        self._files: InheritedFiles | None = None
        self._indices: array[int] | None = None
        self._before: tuple[int, ...] = ()
        self._samples, self._dropped, self._moved = list[Any](), 0, ""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "dataset": None}

    def worker_started(self, worker_id: int) -> None:
        """Remember the worker and its copy of the dataset."""
        info = get_worker_info()
        self.worker, self.dataset = worker_id, info.dataset if info else None
        self._files = InheritedFiles(self._parent_files, self.dataset)

    def fetch_begins(self, index: Any) -> None:
        """Copy the indices, and look at what else a worker has."""
        self._indices = _numbers(index)
        if self._files is not None:
            self._fetches += 1
            self._moved = self._files.fetch_begins()
            self._before = generator_states(self.dataset) if self._fetches <= DRAWS else ()

    def samples_made(self, samples: Any) -> None:
        """Keep the samples until they are collated, without those that are None."""
        if self._files is not None:
            self._files.fetch_ends()
        listed = samples if isinstance(samples, list) else [samples]
        self._samples = [sample for sample in listed if sample is not None]
        self._dropped = len(listed) - len(self._samples)
        if self._indices is not None and len(self._indices) != len(listed):
            self._indices = None
        elif self._dropped and self._indices is not None:
            pairs = zip(self._indices, listed, strict=True)
            self._indices = array("q", [n for n, sample in pairs if sample is not None])

    def batch_made(self, batch: Any) -> Any:
        """Attach the description to the batch, or keep it in the main process."""
        arrays, count = arrays_in(batch), len(self._samples)
        identified = self.contents or self._indices is None
        prints = fingerprints(self._samples, arrays) if identified else None
        rows = {len(array) if array.ndim else -1 for array in arrays}
        draws = None
        if self._before:
            ids = np.asarray(prints if self._indices is None else self._indices).tobytes()
            draws = Draws(self._before, generator_states(self.dataset), ids)
        self.report = BatchReport(
            self.worker,
            count,
            self._indices,
            prints,
            rows.pop() if len(rows) == 1 else -1,
            self._dropped,
            find_nan(arrays, count),
            draws,
            {} if self.worker == MAIN else epoch_numbers(self.dataset),
            self._moved,
        )
        self._samples = []
        return batch if self.worker == MAIN else attach_report(batch, self.report)

    def failed(self, error: Exception) -> None:
        """Leave the batches of this process without a description."""


def _numbers(index: Any) -> array[int] | None:
    """Return a copy of the indices of a batch, or None if the dataset is a stream."""
    several = isinstance(index, list | tuple) or (isinstance(index, torch.Tensor) and index.ndim)
    try:
        return array("q", index if several else [index])
    except (TypeError, ValueError, OverflowError):
        return None
