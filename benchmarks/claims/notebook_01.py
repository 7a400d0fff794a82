"""Compute the figures of notebook 01."""

import torch
from torch.utils.data import WeightedRandomSampler


def distinct_percent(count: int = 200_000) -> int:
    """Return the percentage of `count` items that `count` draws with replacement contain."""
    generator = torch.Generator().manual_seed(0)
    draws = WeightedRandomSampler([1.0] * count, count, generator=generator)
    return round(100 * len(set(draws)) / count)
