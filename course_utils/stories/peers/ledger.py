"""Count how many events an epoch served, how many of them were distinct, and how well shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ledger:
    """Counts of the events that one epoch of a loader served."""

    n_events: int  # events on disk
    served: int
    distinct: int
    neighbors: float  # pairs in a batch that are adjacent on disk, relative to chance

    @property
    def complete(self) -> bool:
        """Whether every event was served exactly once."""
        return self.served == self.distinct == self.n_events


def ledger(batches: Sequence[torch.Tensor], n_events: int) -> Ledger:
    """Return the counts of an epoch.

    Args:
        batches: positions on disk of the events of each batch, shape (batch,).
        n_events: number of events on disk.
    """
    met, by_chance = 0, 0.0
    for batch in batches:
        places = batch.long().sort().values
        met += int((places.diff() == 1).sum())
        by_chance += len(places) * (len(places) - 1) / n_events
    served = torch.cat([batch.long() for batch in batches])
    return Ledger(
        n_events=n_events,
        served=len(served),
        distinct=int(torch.bincount(served, minlength=n_events).count_nonzero()),
        neighbors=met / by_chance if by_chance else 0.0,
    )
