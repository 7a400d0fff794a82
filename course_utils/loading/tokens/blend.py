"""Blend corpora in exact proportions: at every moment each has served its share, to a sample.

    corpora = [Corpus(folder, name) for name in ("code", "docs", "prose")]
    blend = Blend(corpora, [0.5, 0.3, 0.2], length=256, count=100_000)
    [one.epochs for one in blend.windows]  # how often each is served: prose, the smallest, most
    loader = DataLoader(blend, 16, num_workers=2)  # no shuffle: that would undo the proportions

Whoever draws the corpus of each sample at random gets the proportions on average. For a small share
that is not close: of 1,000 samples with a share of 1 %, chance makes 7 or 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from course_utils.loading.tokens.corpus import Corpus
from course_utils.loading.tokens.windows import PackedWindows


class Blend(Dataset[torch.Tensor]):
    """Windows of several corpora, taken in turns; each corpus begins anew when it is through."""

    def __init__(
        self,
        corpora: Sequence[Corpus],
        weights: Sequence[float],
        *,
        length: int,
        count: int,
        seed: int = 0,
    ):
        """Work out whose turn it is at each sample.

        Args:
            corpora: what to take windows from.
            weights: the shares of the corpora, in any unit.
            length: inputs of a window, and targets.
            count: windows in all.
            seed: what the order within each corpus depends on.

        Raises:
            ValueError: a weight is missing, or is not positive.
        """
        if len(weights) != len(corpora) or not all(weight > 0 for weight in weights):
            raise ValueError(
                f"{len(corpora)} corpora cannot be blended with the weights {[*weights]}; give "
                "each one a weight above 0."
            )
        self.sources, self.numbers = take_turns(weights, count)
        served = np.bincount(self.sources, minlength=len(corpora))
        self.windows = [
            PackedWindows(corpus, length, count=count, seed=seed)
            for corpus, count in zip(corpora, served.tolist(), strict=True)
        ]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, number: int) -> torch.Tensor:
        windows = self.windows[int(self.sources[number])]
        return windows[int(self.numbers[number])]


def take_turns(weights: Sequence[float], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each of `count` samples its source, and which one of that source's it is.

    Sample j of a source with share w is due at (j + 1/2) / w; the turns are those times in order.
    """
    shares = np.asarray(weights, float) / sum(weights)
    each = [np.arange(ceil(share * count) + 1) for share in shares]
    due = np.concatenate([(own + 0.5) / share for own, share in zip(each, shares, strict=True)])
    turns = np.argsort(due, kind="stable")[:count]
    sources = np.repeat(np.arange(len(shares)), [len(own) for own in each])
    return sources[turns], np.concatenate(each)[turns]
