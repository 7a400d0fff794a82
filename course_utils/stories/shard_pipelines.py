"""A plot and example data sets of notebook 10."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure

from course_utils.stories.figures import drawing, value_bars
from keepfed.formatting import plural


def plot_epochs(seconds: Mapping[str, float]) -> Figure:
    """Return bars of the seconds that each epoch takes."""
    with drawing(7, 1.4) as (figure, (panel,)):
        value_bars(panel, seconds, "{:.3g} s".format)
        panel.set(xlabel="seconds for an epoch, emulated S3")
    return figure


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
