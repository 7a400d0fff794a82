"""Draw the random parameters of an augmentation: tensors, with a value for each sample."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Self

import torch
from torch import Tensor

TRIES = 10  # candidates for a crop, as in torchvision


@dataclass(frozen=True)
class Crops:
    """Windows to cut out, one for each sample: int64 tensors of (batch,), in pixels."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor

    def to(self, device: torch.device | str) -> Crops:
        """Return the same windows on `device`."""
        return Crops(*(_send(part, device) for part in vars(self).values()))


@dataclass(frozen=True)
class Draws:
    """What is random in an augmentation, drawn for each sample of a batch."""

    crops: Crops
    flips: Tensor  # bool (batch,)
    brightness: Tensor  # float32 (batch,), 1 leaves it as it is
    contrast: Tensor  # the same

    def to(self, device: torch.device | str) -> Self:
        """Return the same draws on `device`."""
        crops, *others = vars(self).values()
        return type(self)(crops.to(device), *(_send(part, device) for part in others))


def _send(part: Tensor, device: torch.device | str) -> Tensor:
    """Copy to `device`; to CUDA without making the host wait for the steps before."""
    if torch.device(device).type == "cuda" and not part.is_cuda:
        part = part.pin_memory()
    return part.to(device, non_blocking=True)


def draw_crops(
    batch: int,
    size: tuple[int, int],
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    generator: torch.Generator | None = None,
) -> Crops:
    """Draw a window for each sample as `RandomResizedCrop` of torchvision draws one.

    Its area is uniform in `scale` times the image, the logarithm of width over height uniform in
    `ratio`. Of ten such windows the first one that fits counts; if none does, the largest one in
    the middle.

    Args:
        batch: number of samples.
        size: height and width of the images.
        scale: smallest and largest share of the image.
        ratio: smallest and largest width over height.
        generator: of the CPU, where all is drawn: so the draws are the same for every device.

    Raises:
        ValueError: `scale` or `ratio` is no range of positive numbers.
    """
    for name, (low, high) in (("scale", scale), ("ratio", ratio)):
        if not 0 < low <= high:
            raise ValueError(f"{name}=({low}, {high}) is no range; give 0 < lowest <= highest.")
    rows, columns = size
    area = rows * columns * _uniform((batch, TRIES), *scale, generator)
    aspect = _uniform((batch, TRIES), log(ratio[0]), log(ratio[1]), generator).exp()
    width = (area * aspect).sqrt().round().long()
    height = (area / aspect).sqrt().round().long()
    fits = (width > 0) & (width <= columns) & (height > 0) & (height <= rows)
    first = fits.byte().argmax(1, keepdim=True)
    found = fits.any(1)
    middle_height, middle_width = _middle(size, ratio)
    height = torch.where(found, height.gather(1, first)[:, 0], middle_height)
    width = torch.where(found, width.gather(1, first)[:, 0], middle_width)
    top = (torch.rand(batch, generator=generator) * (rows - height + 1)).long()
    left = (torch.rand(batch, generator=generator) * (columns - width + 1)).long()
    top = torch.where(found, top, (rows - middle_height) // 2)
    left = torch.where(found, left, (columns - middle_width) // 2)
    return Crops(top, left, height, width)


def _middle(size: tuple[int, int], ratio: tuple[float, float]) -> tuple[int, int]:
    """Return height and width of the largest window whose ratio is allowed."""
    rows, columns = size
    if columns / rows < ratio[0]:
        return round(columns / ratio[0]), columns
    if columns / rows > ratio[1]:
        return rows, round(rows * ratio[1])
    return rows, columns


def draw_flips(
    batch: int, share: float = 0.5, *, generator: torch.Generator | None = None
) -> Tensor:
    """Draw which samples are flipped: bool (batch,)."""
    return torch.rand(batch, generator=generator) < share


def draw_factors(batch: int, spread: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw factors from 1 - spread to 1 + spread for brightness or contrast: float32 (batch,)."""
    return _uniform((batch,), max(0.0, 1 - spread), 1 + spread, generator)


def _uniform(
    shape: tuple[int, ...], low: float, high: float, generator: torch.Generator | None
) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator)
