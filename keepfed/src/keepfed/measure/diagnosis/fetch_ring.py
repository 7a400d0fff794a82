"""Record the fetches of the workers in memory that they share with the main process.

The records remain available after a worker has ended, and they include batches that the loop
never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepfed.measure.records import Fetch, Row, Sink

ROWS = 2048  # fetches kept per worker


class FetchRing(Sink):
    """The last fetches of each worker."""

    def __init__(self, workers: int):
        """Allocate one ring per worker, or one for the main process if `workers` is 0."""
        # Do not use tensors here. torch fills a large tensor with several OpenMP threads, and then
        # a forked worker that uses OpenMP threads hangs forever.
        self._shared_rows = RawArray("q", max(workers, 1) * ROWS * len(Fetch._fields))
        self._shared_counts = RawArray("q", max(workers, 1))

    @property
    def rows(self) -> NDArray[np.int64]:
        """Fetches, shared with all workers. Shape (workers, ROWS, fields of `Fetch`)."""
        flat = np.frombuffer(self._shared_rows, dtype=np.int64)
        return flat.reshape(len(self._shared_counts), ROWS, len(Fetch._fields))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of fetches of each worker, shared with all workers. Shape (workers,)."""
        return np.frombuffer(self._shared_counts, dtype=np.int64)

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Record a fetch, which overwrites the oldest one in a full ring."""
        worker, counts = max(fetch.worker, 0), self.counts
        self.rows[worker, counts[worker] % ROWS] = fetch
        counts[worker] += 1
        return batch

    def fetches(self) -> list[Fetch]:
        """Return the recorded fetches of all workers, sorted by their end."""
        found = [
            Fetch(*row)
            for rows, count in zip(self.rows, self.counts.tolist(), strict=True)
            for row in rows[: min(count, ROWS)].tolist()
        ]
        return sorted(found, key=lambda fetch: fetch.ended_ns)
