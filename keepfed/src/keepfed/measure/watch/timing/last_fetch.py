"""Store the cost of the last fetch. A worker sends it together with the batch."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

from keepfed.limits import affinity
from keepfed.measure.hook import attach_report
from keepfed.measure.records import MAIN, Fetch, Row, Sink
from keepfed.measure.watch.timing.failsafe import give_up


class LastFetch(Sink):
    """Sink that stores the last fetch of the main process, or sends each fetch of a worker."""

    def __init__(self, *, persistent: bool = False) -> None:
        """Create a sink. `persistent` workers read in shared memory whether the sink is on."""
        self.on: Any = RawArray("B", 1) if persistent else [True]
        self.worker = MAIN
        self.cores = 0  # in a worker, one bit for each core that it may use
        self.fetch: Fetch | None = None

    def worker_started(self, worker_id: int) -> None:
        """Store the worker ID and the cores of this worker."""
        self.worker, self.cores = worker_id, core_bits()

    def wants(self, index: Any) -> bool:
        """Return whether the loop is watched."""
        return bool(self.on[0])

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Store the fetch in the main process, or send it from a worker."""
        if self.worker == MAIN:
            self.fetch = fetch
            return batch
        return attach_report(batch, (tuple(fetch), self.cores)) if self.on[0] else batch

    def failed(self, error: Exception) -> None:
        """Stop watching, so that the process continues unwatched."""
        self.fetch = None
        give_up(error)


def core_bits() -> int:
    """Return one bit for each core that this process may use, or 0 if unknown."""
    return sum(1 << core for core in affinity())
