"""Blend corpora in exact proportions: at any point, each count is right to within one sample.

    corpora = [Corpus(folder, name) for name in ("code", "docs", "prose")]
    blend = Blend(corpora, [0.5, 0.3, 0.2], length=256, count=100_000)
    [one.epochs for one in blend.windows]  # the smallest corpus, prose, is repeated most
    loader = DataLoader(blend, 16, num_workers=2)  # no shuffle, to keep proportions

Drawing the corpus of each sample at random gives the right proportions only on average. For a small
share they are imprecise: of 1,000 samples with a share of 1 %, random draws give for example 7 or
14.
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
    """Windows of several corpora, interleaved. Each corpus starts again when it ends."""

    def __init__(
        self,
        corpora: Sequence[Corpus],
        weights: Sequence[float],
        *,
        length: int,
        count: int,
        seed: int = 0,
    ):
        """Compute the corpus of each sample.

        Args:
            corpora: Corpora to take windows from.
            weights: Shares of the corpora, in any unit.
            length: Number of inputs of a window, which equals its number of targets.
            count: Total number of windows.
            seed: Seed of the order within each corpus.

        Raises:
            ValueError: If a weight is missing or not positive.
        """
        if len(weights) != len(corpora) or not all(weight > 0 for weight in weights):
            raise ValueError(
                f"The weights {[*weights]} do not fit {len(corpora)} corpora. Pass one weight "
                "above 0 for each corpus."
            )
        self.sources, self.numbers = proportional_order(weights, count)
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


def proportional_order(
    weights: Sequence[float], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the source of each of `count` samples, and the sample's index in that source.

    Sample j of a source with share w is due at (j + 1/2) / w. Samples are sorted by due time.
    """
    shares = np.asarray(weights, float) / sum(weights)
    each = [np.arange(ceil(share * count) + 1) for share in shares]
    due = np.concatenate([(own + 0.5) / share for own, share in zip(each, shares, strict=True)])
    turns = np.argsort(due, kind="stable")[:count]
    sources = np.repeat(np.arange(len(shares)), [len(own) for own in each])
    return sources[turns], np.concatenate(each)[turns]
