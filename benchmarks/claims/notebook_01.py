"""Recount what notebook 01 states in figures."""

import torch
from torch.utils.data import WeightedRandomSampler


def distinct_percent(count: int = 200_000) -> int:
    """Return how many of `count` items as many draws with replacement see, in whole percent."""
    generator = torch.Generator().manual_seed(0)
    draws = WeightedRandomSampler([1.0] * count, count, generator=generator)
    return round(100 * len(set(draws)) / count)
