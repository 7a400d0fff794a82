"""Keep what the last fetch cost; a worker sends it with its batch."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

from keepfed.limits import affinity
from keepfed.measure.hook import Sink, attach_report
from keepfed.measure.records import MAIN, Fetch, Row
from keepfed.measure.watch.timing.failsafe import give_up


class LastFetch(Sink):
    """Has the last fetch of the main process, or sends each one of a worker."""

    def __init__(self, *, lasting: bool = False) -> None:
        """Begin; `lasting` workers, which outlive the loop, look whether anybody wants to know."""
        self.on: Any = RawArray("B", 1) if lasting else [True]
        self.worker = MAIN
        self.cores = 0  # of a worker: a bit for each that it may use
        self.fetch: Fetch | None = None

    def worker_started(self, worker_id: int) -> None:
        """Begin in a worker."""
        self.worker, self.cores = worker_id, core_bits()

    def wants(self, index: Any) -> bool:
        """Return whether anybody wants to know."""
        return bool(self.on[0])

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Keep the fetch, or send it."""
        if self.worker == MAIN:
            self.fetch = fetch
            return batch
        return attach_report(batch, (tuple(fetch), self.cores)) if self.on[0] else batch

    def failed(self, error: Exception) -> None:
        """Let the process continue unwatched."""
        self.fetch = None
        give_up(error)


def core_bits() -> int:
    """Return a bit for each core that this process may use; 0 where the system does not tell."""
    return sum(1 << core for core in affinity())
