"""Receive the fetches of a loader, in the process that builds the batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keepfed.measure.records.fetch import Fetch
from keepfed.measure.records.span import Row


class Sink:
    """Receiver of fetches, which must be picklable because every worker gets a copy."""

    def worker_started(self, worker_id: int) -> None:
        """Start in this process, which is a worker."""

    def wants(self, index: Any) -> bool:
        """Return whether to measure the fetch of `index`, which begins now."""
        return True

    def take(self, fetch: Fetch, rows: Sequence[Row], batch: Any) -> Any:
        """Receive a fetch and its named stages, and return the batch to pass on."""
        return batch

    def failed(self, error: Exception) -> None:
        """Handle an error of the meter, which ends the measurement. The default raises it."""
        raise error
