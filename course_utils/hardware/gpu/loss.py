"""The result of a step: one number for the contents of the batch that it read."""

from __future__ import annotations

from collections.abc import Sequence

import torch

SAMPLE = 1 << 14  # elements looked at per tensor; more would make torch start its threads
_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 / golden ratio, odd: no bit of the sum is lost
_MASK = (1 << 48) - 1  # as many bits as a float64 holds exactly


class Loss:
    """The result of a step, which may still be running: a checksum of what the step read."""

    def item(self) -> float:
        """Block the host until the step is finished and return the checksum."""
        raise NotImplementedError

    def __float__(self) -> float:
        return self.item()

    def __repr__(self) -> str:
        return "<loss on the device: item() waits for it>"


def checksum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one number in [0, 1) for the contents of `parts`, NaN if NaN is among them.

    A GPU and a CPU compute it to the same last bit, and it is cheap enough for every step:
    the bits of evenly spaced elements are weighted by position and added as integers, whose sums do
    not depend on their order.

    Returns:
        A float64 scalar on their device (on the CPU if there are none).
    """
    device = parts[0].device if parts else torch.device("cpu")
    total = torch.zeros((), dtype=torch.int64, device=device)
    spoilt = torch.zeros((), dtype=torch.bool, device=device)
    for tensor in parts:
        sample = _sample(tensor)
        spoilt = spoilt | sample.isnan().any()
        bits = sample.view(_INTEGER[sample.element_size()]).to(torch.int64)
        weights = torch.arange(len(bits), device=device) * 2 + 1
        total = total * 31 + (bits * weights).sum() + tensor.numel()
    share = (((total * _MIX) >> 16) & _MASK).to(torch.float64) / (_MASK + 1)
    return torch.where(spoilt, torch.nan, share)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    # An odd stride, so that of a table with 4 columns not only one is looked at.
    sample = flat[:: flat.numel() // SAMPLE | 1].contiguous()
    return torch.view_as_real(sample).reshape(-1) if sample.is_complex() else sample
