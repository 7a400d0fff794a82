"""Concatenate documents and cut them into windows, in a different order each epoch.

    windows = PackedWindows(Corpus(folder, "code"), 256, count=100_000)
    for batch in DataLoader(windows, 16):  # int64 (16, 257), already shuffled
        inputs, targets = batch[:, :-1], batch[:, 1:]

If training uses several ranks or must be able to resume, a sampler assigns the windows. It does not
shuffle, because the windows are already shuffled:

    batches = ResumableBatches(len(windows), 16, shuffle=False)
    for batch in batches.follow(DataLoader(windows, batch_sampler=batches)): ...

A window has `length + 1` tokens. Its last token is only a target, and also the first input of the
next window. Every token is a target once per epoch, except for a few at the end of the epoch.

Tokens are not copied in advance. Like Megatron's GPTDataset, it stores three arrays per epoch: a
random order of the documents, the end of each document in that order, and a random order of the
windows. Window n depends only on (seed, n), not on the worker, the rank or earlier reads. Training
that stops after n windows can therefore continue with the next one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from course_utils.loading.tokens.corpus import Corpus


class Index(NamedTuple):
    """Order of documents and windows in one epoch."""

    documents: NDArray[np.int64]  # documents in packing order
    ends: NDArray[np.int64]  # end of each of them, in tokens since the start of the epoch
    windows: NDArray[np.int64]  # windows in serving order


class PackedWindows(Dataset[torch.Tensor]):
    """Windows of `length + 1` tokens of a corpus, over as many epochs as needed."""

    def __init__(self, corpus: Corpus, length: int, *, count: int | None = None, seed: int = 0):
        """Check the length. Each process builds the index of an epoch when it reads it.

        Args:
            corpus: Documents to pack.
            length: Number of inputs of a window, which equals its number of targets.
            count: Total number of windows. None: the windows of one epoch.
            seed: Seed of the orders, together with the epoch.

        Raises:
            ValueError: If the corpus is shorter than a window.
        """
        self.per_epoch = (len(corpus.tokens) - 1) // length if length > 0 else 0
        if self.per_epoch < 1:
            raise ValueError(
                f"Cannot cut windows of {length} tokens from {corpus.name}, which has "
                f"{len(corpus.tokens):,}. Choose a length from 1 to {len(corpus.tokens) - 1:,}."
            )
        self.corpus, self.length, self.seed = corpus, length, seed
        self.count = self.per_epoch if count is None else count
        self._built: tuple[int, Index] | None = None

    @property
    def epochs(self) -> float:
        """Number of epochs of the corpus that the windows cover."""
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
            left = int(ends[which]) - first - filled  # rest of this document
            piece = self.corpus[documents[which]][-left:][: len(tokens) - filled]
            tokens[filled : filled + len(piece)] = piece
            filled, which = filled + len(piece), which + 1
        return torch.from_numpy(tokens)

    def index(self, epoch: int) -> Index:
        """Return the index of an epoch. The index requested last is cached."""
        if self._built is None or self._built[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            documents = rng.permutation(len(self.corpus))
            ends = np.cumsum(np.diff(self.corpus.offsets)[documents])
            self._built = epoch, Index(documents, ends, rng.permutation(self.per_epoch))
        return self._built[1]
