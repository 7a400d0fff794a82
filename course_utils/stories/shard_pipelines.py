"""Example data sets of notebook 10."""

from dataclasses import dataclass

from keepfed.formatting import plural


@dataclass(frozen=True)
class DataSet:
    """A data set, and the workers and ranks that read it."""

    samples: int
    sample_mb: float
    workers: int  # per rank; 0: the rank reads without workers
    ranks: int

    @property
    def places(self) -> int:
        """Number of processes that read at the same time."""
        return max(1, self.workers) * self.ranks

    @property
    def mb(self) -> float:
        """Size of all samples in MB."""
        return self.samples * self.sample_mb

    def __str__(self) -> str:
        """Return a description."""
        return (
            f"{self.samples:,} samples of {self.sample_mb:g} MB, {plural(self.workers, 'worker')} "
            f"on each of {plural(self.ranks, 'rank')}"
        )


SHOWN = {
    "ImageNet": DataSet(1_281_167, 0.11, 8, 8),
    "telescope": DataSet(2_000_000, 0.002, 4, 1),
    "volumes": DataSet(168, 140, 2, 4),
    "laptop": DataSet(50_000, 0.01, 0, 1),
}
