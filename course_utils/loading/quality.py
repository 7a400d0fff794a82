"""Measure how good a shuffle is: who sits with whom, and how far batches are from the mean.

result = mixing(batches, labels, memory=1000)
print(result)
draw_together({"a buffer of 1,000": result})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from course_utils.loading.events import colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3  # of panels
BRIGHTEST = 3.0  # times as often as in a full shuffle; what meets more often looks the same
Batches = Iterable[Sequence[int] | NDArray[np.integer]]


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """How well the samples of one epoch were mixed."""

    std: float  # standard deviation of the mean label of a batch, in units of the label
    ideal: float  # what a full shuffle would give: sigma / sqrt(batch_size)
    batch_size: int
    together: NDArray[np.float64]  # of who_sits_with_whom
    memory: int | None  # samples that were held to mix so; None: not told
    samples: int
    distinct: int
    missing: int  # samples on disk that never came

    @property
    def ratio(self) -> float:
        """How many times as much as in a full shuffle the batch means scatter; 1 is ideal."""
        return self.std / self.ideal

    @property
    def worth(self) -> float:
        """How many independent samples would scatter as much as a batch does."""
        return self.batch_size / max(1.0, self.ratio) ** 2

    def __str__(self) -> str:
        """Say it in a few lines."""
        held = "" if self.memory is None else f" {self.memory:,} samples were held in memory."
        ledger = f"{self.samples:,} samples, each exactly once."
        if self.samples != self.distinct or self.missing:
            ledger = (
                f"{self.samples:,} samples came, only {self.distinct:,} of them distinct, and "
                f"{self.missing:,} never: this is no epoch."
            )
        return (
            f"The mean of a batch scatters by {self.std:.3g}; in a full shuffle by "
            f"{self.ideal:.3g} ({self.ratio:.1f} times).\nA batch of {self.batch_size:,} is worth "
            f"{self.worth:.3g} independent samples.{held}\n{ledger}"
        )


def mixing(
    batches: Batches, labels: ArrayLike, *, blocks: int = 32, memory: int | None = None
) -> Mixing:
    """Measure one epoch.

    Args:
        batches: for each batch the indices of its samples on disk. Only full batches count for the
            scatter; all count for the rest.
        labels: one number for each sample, in the order on disk, shape (samples,).
        blocks: into how many runs the disk is cut for the matrix.
        memory: samples that the shuffle holds, such as the size of its buffer, to be told with it.

    Raises:
        ValueError: there are fewer than two full batches, an index is no sample, or all labels are
            the same.
    """
    values = np.asarray(labels, np.float64)
    taken = _checked(batches, len(values))
    batch_size = max((len(batch) for batch in taken), default=0)
    means = [values[batch].mean() for batch in taken if len(batch) == batch_size]
    if len(means) < 2:
        raise ValueError("Scatter needs two full batches; take smaller batches or more samples.")
    if not (sigma := float(values.std())):
        raise ValueError("All labels are the same, so every order is as good; take another label.")
    counts = np.bincount(np.concatenate(taken), minlength=len(values))
    return Mixing(
        std=float(np.std(means)),
        ideal=sigma / batch_size**0.5,
        batch_size=batch_size,
        together=who_sits_with_whom(taken, len(values), blocks=blocks),
        memory=memory,
        samples=int(counts.sum()),
        distinct=int(np.count_nonzero(counts)),
        missing=int(np.count_nonzero(counts == 0)),
    )


def who_sits_with_whom(
    batches: Iterable[NDArray[np.int64]], n_samples: int, *, blocks: int
) -> NDArray[np.float64]:
    """Return how often samples of two blocks of the disk share a batch; 1: as in a full shuffle.

    Args:
        batches: for each batch the indices of its samples on disk.
        n_samples: how many samples there are on disk.
        blocks: into how many runs, equal to within a sample, the disk is cut.

    Returns:
        float64 (blocks, blocks), symmetric: pairs that met, over those that would meet on average
        if all samples were shuffled.

    Raises:
        ValueError: blocks would have fewer than two samples.
    """
    if not 1 <= blocks <= n_samples / 2:
        raise ValueError(
            f"{n_samples:,} samples make no {blocks} blocks of two or more; take fewer blocks."
        )
    sizes = np.diff(np.linspace(0, n_samples, blocks + 1).astype(int))
    block_of = np.repeat(np.arange(blocks), sizes)
    met = np.zeros((blocks, blocks))
    for batch in batches:
        from_block = np.bincount(block_of[batch], minlength=blocks)
        met += np.outer(from_block, from_block) - np.diag(from_block)  # nobody sits with himself
    possible = np.outer(sizes, sizes) - np.diag(sizes)
    together: NDArray[np.float64] = met / possible * (possible.sum() / max(met.sum(), 1))
    return together


def draw_together(ways: Mapping[str, Mixing]) -> Figure:
    """Draw a matrix for each way to shuffle: the file from front to back, against itself.

    All share one scale of colours. The title says how much more than ideal the batch means scatter.
    """
    import matplotlib.pyplot as plt

    columns = min(COLUMNS, len(ways))
    rows = -(-len(ways) // columns)
    with plt.style.context("course_utils.plots"):
        figure, panels = plt.subplots(
            rows, columns, figsize=(2.6 * columns, 2.7 * rows), layout="constrained", squeeze=False
        )
        for panel in panels.flat[len(ways) :]:
            panel.remove()
        for panel, (name, mixed) in zip(panels.flat, ways.items(), strict=False):
            drawn = panel.imshow(mixed.together, cmap=colours(), vmin=0, vmax=BRIGHTEST)
            held = f" ({mixed.memory:,} held)" if mixed.memory else ""
            title = f"{name}{held}\nscatter {mixed.ratio:.1f} × ideal"
            panel.set_title(title, fontsize="medium")
            panel.set(xticks=[], yticks=[])
        for panel in panels[:, 0]:
            panel.set_ylabel("end of file ← start")
        for panel in panels[-1]:
            panel.set_xlabel("start → end of file")
        bar = figure.colorbar(drawn, ax=list(panels.flat[: len(ways)]), extend="max", shrink=0.8)
        bar.set_label("share a batch\n(1: as in a full shuffle)")
    plt.close(figure)  # a notebook shows what the cell returns, and only that
    return figure


def _checked(batches: Batches, n_samples: int) -> list[NDArray[np.int64]]:
    taken = [np.asarray(batch, np.int64) for batch in batches]
    for batch in taken:
        if batch.size and not 0 <= batch.min() <= batch.max() < n_samples:
            raise ValueError(
                f"A batch holds index {batch.max() if batch.min() >= 0 else batch.min()}, but the "
                f"samples are 0 to {n_samples - 1}; give the indices on disk."
            )
    return taken
