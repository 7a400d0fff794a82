"""Pack documents end to end and cut them into windows, each epoch in another order.

    windows = PackedWindows(Corpus(folder, "code"), 256, count=100_000)
    for batch in DataLoader(windows, 16):  # int64 (16, 257), in an order that is random already
        inputs, targets = batch[:, :-1], batch[:, 1:]

In a training with several ranks, or one that must resume, the sampler decides who serves which
window. It does not shuffle, because the windows are shuffled already:

    batches = ResumableBatches(len(windows), 16, shuffle=False)
    for batch in batches.follow(DataLoader(windows, batch_sampler=batches)): ...

A window has one token more than `length`: its last one is only a target, and the first input of the
next window. So every token is a target once an epoch, but for the few that are left at its end.

Nothing is copied. Like Megatron's GPTDataset, it keeps three arrays for an epoch: the documents in
a random order, where each of them ends when they lie in that order, and a random order of the
windows. What window n holds depends on (seed, n) and on nothing else: not on a worker or a rank,
and not on what was read before. So a training that stops after n windows goes on with the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from course_utils.loading.tokens.corpus import Corpus


class Index(NamedTuple):
    """How one epoch of a corpus is put together."""

    documents: NDArray[np.int64]  # in the order in which they are packed
    ends: NDArray[np.int64]  # where each of them ends, in tokens of the epoch
    windows: NDArray[np.int64]  # in the order in which they are served


class PackedWindows(Dataset[torch.Tensor]):
    """Windows of `length + 1` tokens of a corpus, in as many epochs as they take."""

    def __init__(self, corpus: Corpus, length: int, *, count: int | None = None, seed: int = 0):
        """Build nothing yet; each process builds the index of the epoch that it reads.

        Args:
            corpus: the documents.
            length: inputs of a window, and targets.
            count: windows in all; None: those of one epoch.
            seed: what the orders depend on, besides the epoch.

        Raises:
            ValueError: the corpus is shorter than a window.
        """
        self.per_epoch = (len(corpus.tokens) - 1) // length if length > 0 else 0
        if self.per_epoch < 1:
            raise ValueError(
                f"Windows of {length} tokens cannot be cut from {corpus.name}, which has "
                f"{len(corpus.tokens):,}; choose a length from 1 to {len(corpus.tokens) - 1:,}."
            )
        self.corpus, self.length, self.seed = corpus, length, seed
        self.count = self.per_epoch if count is None else count
        self._built: tuple[int, Index] | None = None

    @property
    def epochs(self) -> float:
        """How often the windows serve the corpus."""
        return self.count / self.per_epoch

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> torch.Tensor:
        epoch, place = divmod(range(self.count)[number], self.per_epoch)
        documents, ends, windows = self.index(epoch)
        first = int(windows[place]) * self.length
        tokens = np.empty(self.length + 1, np.int64)
        filled, which = 0, int(np.searchsorted(ends, first, "right"))
        while filled < len(tokens):
            left = int(ends[which]) - first - filled  # of this document
            piece = self.corpus[documents[which]][-left:][: len(tokens) - filled]
            tokens[filled : filled + len(piece)] = piece
            filled, which = filled + len(piece), which + 1
        return torch.from_numpy(tokens)

    def index(self, epoch: int) -> Index:
        """Return the index of an epoch; the last one that was asked for is kept."""
        if self._built is None or self._built[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            documents = rng.permutation(len(self.corpus))
            ends = np.cumsum(np.diff(self.corpus.offsets)[documents])
            self._built = epoch, Index(documents, ends, rng.permutation(self.per_epoch))
        return self._built[1]
