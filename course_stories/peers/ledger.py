"""Keep the books of an epoch: how many events were served, how many distinct, how well shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ledger:
    """What one epoch of a loader gave."""

    n_events: int  # on disk
    served: int
    distinct: int
    neighbours: float  # pairs of a batch that lie side by side on disk; 1: as many as by chance

    @property
    def complete(self) -> bool:
        """Whether every event came exactly once."""
        return self.served == self.distinct == self.n_events

    @property
    def shuffled(self) -> bool:
        """Whether batches are drawn from the whole set, as far as neighbours tell."""
        return 0.8 < self.neighbours < 1.25

    def __str__(self) -> str:
        """Say it in three columns."""
        return f"{self.served:>9,} {self.distinct:>9,} {self.neighbours:>6.1f}"


def ledger(batches: Sequence[torch.Tensor], n_events: int) -> Ledger:
    """Return the books of an epoch.

    Args:
        batches: for each batch the places of its events on disk, shape (batch,).
        n_events: events on disk.
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
        neighbours=met / by_chance if by_chance else 0.0,
    )
