"""Measure the quality of a shuffle: co-occurrence in batches, and scatter of batch means.

print(mixing(batches, labels, memory=1000))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Batches = Iterable[Sequence[int] | NDArray[np.integer]]


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """Measured shuffle quality of one epoch."""

    std: float  # standard deviation of the mean label of a batch, in units of the label
    ideal: float  # std of a full shuffle: sigma / sqrt(batch_size)
    batch_size: int
    co_occurrence: NDArray[np.float64]  # result of co_occurrence_matrix
    memory: int | None  # samples kept in memory to shuffle; None: unknown
    samples: int
    distinct: int
    missing: int  # samples on disk that were never served

    @property
    def ratio(self) -> float:
        """Scatter of the batch means compared with a full shuffle; 1 is ideal."""
        return self.std / self.ideal

    @property
    def worth(self) -> float:
        """Number of independent samples that would scatter as much as one batch."""
        return self.batch_size / max(1.0, self.ratio) ** 2

    def __str__(self) -> str:
        """Return a summary of a few lines."""
        held = "" if self.memory is None else f" {self.memory:,} samples were kept in memory."
        ledger = f"{self.samples:,} samples, each exactly once."
        if self.samples != self.distinct or self.missing:
            ledger = (
                f"{self.samples:,} samples were served, but only {self.distinct:,} unique ones, "
                f"and {self.missing:,} never: this is not an epoch."
            )
        return (
            f"The mean of a batch scatters by {self.std:.3g}, and by {self.ideal:.3g} in a full "
            f"shuffle ({self.ratio:.1f} times).\nA batch of {self.batch_size:,} is worth "
            f"{self.worth:.3g} independent samples.{held}\n{ledger}"
        )


def mixing(
    batches: Batches, labels: ArrayLike, *, blocks: int = 32, memory: int | None = None
) -> Mixing:
    """Measure how well the samples of one epoch are shuffled.

    Args:
        batches: Indices on disk of the samples of each batch. Incomplete batches do not count for
            the scatter, but for all other results.
        labels: One number per sample, in the order on disk, shape (samples,).
        blocks: Number of blocks into which the disk is divided for the matrix.
        memory: Number of samples that the shuffle keeps in memory. Only shown in the result.

    Raises:
        ValueError: If there are fewer than two full batches, an index is out of range, or all
            labels are equal.
    """
    values = np.asarray(labels, np.float64)
    taken = _checked(batches, len(values))
    batch_size = max((len(batch) for batch in taken), default=0)
    means = [values[batch].mean() for batch in taken if len(batch) == batch_size]
    if len(means) < 2:
        raise ValueError("The scatter needs two full batches. Use smaller batches or more samples.")
    if not (sigma := float(values.std())):
        raise ValueError(
            "All labels are equal, so every order is equally good. Use a different label."
        )
    counts = np.bincount(np.concatenate(taken), minlength=len(values))
    return Mixing(
        std=float(np.std(means)),
        ideal=sigma / batch_size**0.5,
        batch_size=batch_size,
        co_occurrence=co_occurrence_matrix(taken, len(values), blocks=blocks),
        memory=memory,
        samples=int(counts.sum()),
        distinct=int(np.count_nonzero(counts)),
        missing=int(np.count_nonzero(counts == 0)),
    )


def co_occurrence_matrix(
    batches: Iterable[NDArray[np.int64]], n_samples: int, *, blocks: int
) -> NDArray[np.float64]:
    """Return how often samples of two blocks share a batch; 1 means as in a full shuffle.

    Args:
        batches: Indices on disk of the samples of each batch.
        n_samples: Number of samples on disk.
        blocks: Number of blocks of the disk. Their sizes differ by at most one sample.

    Returns:
        float64 (blocks, blocks), symmetric: number of pairs in the same batch, divided by the
        expected number in a full shuffle.

    Raises:
        ValueError: If blocks would have fewer than two samples.
    """
    if not 1 <= blocks <= n_samples / 2:
        raise ValueError(
            f"Cannot divide {n_samples:,} samples into {blocks} blocks of at least two. Use fewer "
            "blocks."
        )
    sizes = np.diff(np.linspace(0, n_samples, blocks + 1).astype(int))
    block_of = np.repeat(np.arange(blocks), sizes)
    met = np.zeros((blocks, blocks))
    for batch in batches:
        counts = np.bincount(block_of[batch], minlength=blocks)
        met += np.outer(counts, counts) - np.diag(counts)  # no pair of a sample with itself
    possible = np.outer(sizes, sizes) - np.diag(sizes)
    co_occurrence: NDArray[np.float64] = met / possible * (possible.sum() / max(met.sum(), 1))
    return co_occurrence


def _checked(batches: Batches, n_samples: int) -> list[NDArray[np.int64]]:
    taken = [np.asarray(batch, np.int64) for batch in batches]
    for batch in taken:
        if batch.size and not 0 <= batch.min() <= batch.max() < n_samples:
            raise ValueError(
                f"A batch contains index {batch.max() if batch.min() >= 0 else batch.min()}, but "
                f"samples are numbered 0 to {n_samples - 1}. Pass the indices on disk."
            )
    return taken
