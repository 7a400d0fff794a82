"""What each epoch of a loader served: copies of indices or fingerprints, at most `MAX_SAMPLES`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_SAMPLES = 5_000_000  # samples of a loader that are recorded; each takes 16 bytes
UNSEEN = 0  # fingerprint of a sample whose content has no known type
BATCH = 32  # samples that take as much memory as the rest of a batch's description


class Draws(NamedTuple):
    """Random generators of a worker that drew numbers during one fetch."""

    moved: frozenset[tuple[int, int, int]]  # number, and hashes of the state before and after
    ids: bytes  # samples of the fetch


class BatchReport(NamedTuple):
    """Description of a batch by the process that built it."""

    worker: int
    size: int  # samples that the dataset returned, also as None
    indices: array[int] | None  # None: the dataset is a stream
    prints: NDArray[np.int64] | None  # fingerprints of the samples, None if not inspected
    rows: int  # samples that came out of `collate_fn`, -1 if unknown
    nones: int  # samples that were None
    nans: list[int]  # rows with NaN
    draws: Draws | None
    epochs: dict[str, int]  # epoch numbers of the dataset in this process
    moved_file: str  # file of the dataset that another process reads, too

    @property
    def ids(self) -> NDArray[np.int64]:
        """Identities of the samples: indices, or fingerprints of a stream."""
        return np.asarray(self.prints if self.indices is None else self.indices)


@dataclass
class EpochRecord:
    """Record of the samples that one epoch of a loader served to this process."""

    number: int
    training: bool  # whether gradients were enabled when it began
    dataset_epochs: dict[str, int]  # epoch numbers of the dataset in the main process
    order_epoch: int | None = None  # epoch number on which the order depends
    expected: int | None = None  # samples of the sampler, None if unknown
    stepped: bool = False  # whether an optimizer made a step between two batches
    complete: bool = False
    held_by: str = ""  # "cycle" or "zip" if one of them takes the batches
    batches: int = 0
    changed: int = 0  # batches whose memory the loader changed after it had served them
    reports: list[BatchReport] = field(default_factory=list)  # of the batches that are recorded

    @property
    def known(self) -> bool:
        """Whether all batches are recorded with their indices."""
        all_there = len(self.reports) == self.batches
        return all_there and all(report.indices is not None for report in self.reports)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of samples of each batch."""
        return np.array([report.size for report in self.reports], np.int64)

    @property
    def ids(self) -> NDArray[np.int64]:
        """Identities of the samples: indices, or fingerprints of a stream."""
        return np.concatenate([np.array([], np.int64), *(report.ids for report in self.reports)])

    @property
    def prints(self) -> NDArray[np.int64]:
        """Fingerprints of the samples whose content is known."""
        prints = [report.prints for report in self.reports if report.prints is not None]
        joined = np.concatenate([np.array([], np.int64), *prints])
        return joined[joined != UNSEEN]  # type: ignore[no-any-return]

    @property
    def dropped(self) -> int:
        """Number of samples that were fetched, but that `collate_fn` did not return."""
        sizes, rows = self.sizes, np.array([report.rows for report in self.reports])
        # The rows of some batches are no samples, such as the nodes of graphs, or pairs.
        if len(rows) and rows.min() >= 0 and (rows <= sizes).all() and np.mean(rows == sizes) > 0.1:
            return int((sizes - rows).sum())
        return sum(report.nones for report in self.reports)


@dataclass
class LoaderRecord:
    """One loader in one process, with its epochs."""

    name: str
    loop: str  # kind of the dataset and place of the loop, which several loaders may share
    rank: int
    ranks: int
    groups: int  # process groups: 0 if each rank trains alone, more than 1 if ranks have roles
    workers: int
    spare: int  # samples of an epoch that the loader may leave out, because they fill no batch
    total: int | None  # length of the dataset, None for a stream
    draws_again: bool  # whether a sampler of torch draws with replacement
    base: tuple[int, int]  # process, and number of the dataset below all subsets in it
    subset: NDArray[np.int64] | None  # indices into this dataset, None for all
    loader: int = 0  # number of the loader in its process
    validates: bool = False  # whether samples of the training in this loader are a fault
    recorded: int = 0  # samples in the reports of all epochs, and `BATCH` for each report
    epochs: list[EpochRecord] = field(default_factory=list)

    def is_in_process_of(self, other: LoaderRecord) -> bool:
        """Return whether both loaders are in the same process."""
        return (self.rank, self.base[0]) == (other.rank, other.base[0])

    def is_like(self, other: LoaderRecord) -> bool:
        """Return whether two loaders of a loop serve the same data in the same way."""
        names = "loop", "base", "workers", "spare", "draws_again", "total"
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and np.array_equal(self.subset, other.subset)  # type: ignore[arg-type]

    @property
    def training(self) -> list[EpochRecord]:
        """Epochs that trained a model."""
        return [epoch for epoch in self.epochs if epoch.training]
