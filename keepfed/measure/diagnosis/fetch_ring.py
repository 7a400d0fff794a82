"""Keep what each fetch of some workers cost, in memory that they share with the main process.

So the figures are there also when a worker has ended, and of batches that nobody took.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepfed.measure.hook import Sink
from keepfed.measure.records import Fetch, Row

ROWS = 2048  # fetches that are remembered of each worker


class FetchRing(Sink):
    """Remembers the last fetches of each worker."""

    def __init__(self, workers: int):
        """Make room for `workers`; one without any is the main process itself."""
        # Not tensors: torch fills and shares a large one with several OpenMP threads, and a forked
        # worker that then uses several threads itself hangs forever.
        self._shared_rows = RawArray("q", max(workers, 1) * ROWS * len(Fetch._fields))
        self._shared_counts = RawArray("q", max(workers, 1))

    @property
    def rows(self) -> NDArray[np.int64]:
        """The fetches, shared with all workers. Shape (workers, ROWS, fields of `Fetch`)."""
        flat = np.frombuffer(self._shared_rows, dtype=np.int64)
        return flat.reshape(len(self._shared_counts), ROWS, len(Fetch._fields))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of fetches of each worker, shared with all workers. Shape (workers,)."""
        return np.frombuffer(self._shared_counts, dtype=np.int64)

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Keep a fetch; the oldest are forgotten."""
        worker, counts = max(fetch.worker, 0), self.counts
        self.rows[worker, counts[worker] % ROWS] = fetch
        counts[worker] += 1
        return batch

    def fetches(self) -> list[Fetch]:
        """Return all that is remembered, in the order in which they ended."""
        found = [
            Fetch(*row)
            for rows, count in zip(self.rows, self.counts.tolist(), strict=True)
            for row in rows[: min(count, ROWS)].tolist()
        ]
        return sorted(found, key=lambda fetch: fetch.ended_ns)
