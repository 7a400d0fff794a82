"""Result of a step: one number computed from the contents of its batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

SAMPLE = 1 << 14  # elements read per tensor; with more, torch starts its threads
_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 / golden ratio; odd, so no bit of the sum is lost
_MASK = (1 << 48) - 1  # as many bits as a float64 holds exactly


class Loss:
    """Result of a step that may still be running: a checksum of the data it read."""

    def item(self) -> float:
        """Block the host until the step has finished, and return the checksum."""
        raise NotImplementedError

    def __float__(self) -> float:
        return self.item()

    def __repr__(self) -> str:
        return "<loss on the device; item() waits for it>"


def checksum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one number in [0, 1) for the contents of `parts`, or NaN if they contain NaN.

    GPU and CPU give exactly the same result, and it is cheap enough for every step. The bits of
    evenly spaced elements are weighted by position and added as integers, because integer sums do
    not depend on their order.

    Returns:
        A float64 scalar on the device of `parts` (on the CPU if `parts` is empty).
    """
    device = parts[0].device if parts else torch.device("cpu")
    total = torch.zeros((), dtype=torch.int64, device=device)
    poisoned = torch.zeros((), dtype=torch.bool, device=device)
    for tensor in parts:
        sample = _sample(tensor)
        poisoned = poisoned | sample.isnan().any()
        bits = sample.view(_INTEGER[sample.element_size()]).to(torch.int64)
        weights = torch.arange(len(bits), device=device) * 2 + 1
        total = total * 31 + (bits * weights).sum() + tensor.numel()
    share = (((total * _MIX) >> 16) & _MASK).to(torch.float64) / (_MASK + 1)
    return torch.where(poisoned, torch.nan, share)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    # An odd stride, so that the sample covers all columns of a table with 4 columns.
    sample = flat[:: flat.numel() // SAMPLE | 1].contiguous()
    return torch.view_as_real(sample).reshape(-1) if sample.is_complex() else sample
