"""Measure how good a shuffle is: who sits with whom, and how far batches are from the mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Batches = Iterable[Sequence[int] | NDArray[np.integer]]


@dataclass(frozen=True)
class Mixing:
    """How well an epoch was mixed."""

    std: float  # standard deviation of the mean label of a batch, in units of the label
    ideal: float  # what a full shuffle would give: sigma / sqrt(batch size)
    batch_size: int
    together: NDArray[np.float64]  # (blocks, blocks): who_sits_with_whom
    memory: int | None  # samples that had to be held to mix so; None: not told
    samples: int
    distinct: int
    missing: int  # samples of the dataset that never came

    @property
    def ratio(self) -> float:
        """How many times the batch means scatter more than those of a full shuffle; 1 is ideal."""
        return self.std / self.ideal

    @property
    def worth(self) -> float:
        """Independent samples that would scatter as much as a whole batch does."""
        return min(float(self.batch_size), self.batch_size / self.ratio**2)


def mixing(
    batches: Batches,
    labels: Sequence[float] | NDArray[np.floating],
    *,
    blocks: int = 32,
    memory: int | None = None,
) -> Mixing:
    """Measure one epoch.

    Args:
        batches: the indices on disk of the samples of each batch.
        labels: one number per sample, in the order on disk.
        blocks: into how many runs the disk is cut for the matrix.
        memory: samples that the shuffle holds, such as the size of its buffer, to be told with it.
    """
    raise NotImplementedError


def who_sits_with_whom(
    batches: Batches, n_samples: int, *, blocks: int = 32
) -> NDArray[np.float64]:
    """Return how often samples of two blocks of the disk share a batch; 1 is as a full shuffle.

    Returns:
        float64 (blocks, blocks), symmetric: pairs of the two blocks that met, over the number that
        would meet if every batch were drawn from all samples. Draw it as a heat map.
    """
    raise NotImplementedError
