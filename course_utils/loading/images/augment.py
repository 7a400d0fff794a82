"""Augment a whole batch at a time, every sample with random parameters of its own.

    augment = Augment(size=224)
    draws = augment.draw(images.shape, generator=torch.Generator().manual_seed(epoch))
    batch = augment(images, draws.to(images.device))    # uint8 in, float32 out, on their device

What is drawn is kept apart from what is done: the same draws give the same picture on the CPU and
on the device, one at a time and in a batch. All is plain torch, without a loop over the samples.
`per_sample` does the same to one sample at a time, for workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keepfed.loaders.images.crops import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    TRIES,
    between,
    choose_windows,
)

GREY = (0.2989, 0.587, 0.114)  # weights of red, green, blue in the grey of torchvision


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random resized crop, horizontal flip, brightness and contrast, normalise: for a batch."""

    size: int = 224  # pixels of a side
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip_share: float = 0.5
    spread: float = 0.3  # of brightness and contrast around 1
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def draw(self, shape: torch.Size, *, generator: torch.Generator | None = None) -> Draws:
        """Draw the parameters for images of `shape` (batch, channels, height, width)."""
        batch, _, *size = shape
        low, high = max(0.0, 1 - self.spread), 1 + self.spread
        factors = [
            between(torch.rand(batch, generator=generator, device="cpu"), low, high)
            for _ in range(2)
        ]
        windows = draw_windows(batch, size, self.scale, self.ratio, generator)
        return Draws(
            windows,
            torch.rand(batch, generator=generator, device="cpu") < self.flip_share,
            *factors,
        )

    def __call__(self, images: Tensor, draws: Draws | None = None) -> Tensor:
        """Return float32 (batch, 3, size, size) on the device of the images.

        Args:
            images: uint8 (batch, 3, height, width).
            draws: on the same device; None: new ones.

        Raises:
            ValueError: if the images are no batch of uint8 images in three colours.
        """
        draws = draws or self.draw(_checked(images).shape).to(images.device)
        return normalise(self.visible(images, draws), self.mean, self.std)

    def visible(self, images: Tensor, draws: Draws) -> Tensor:
        """Return the same before it is normalised: 0..1, to be looked at."""
        cropped = crop_resize(_checked(images), draws.windows, self.size) / 255
        return adjust(flip(cropped, draws.flips), draws.brightness, draws.contrast)


def _checked(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(
            f"The images are {images.dtype} of {tuple(images.shape)}; give a batch in uint8 of "
            "(batch, 3, height, width), as decoded."
        )
    return images


def per_sample(augment: Augment) -> Any:
    """Return what `augment` does to a batch as transforms of torchvision, for a single image.

    They go to workers: `Jpegs(folder, per_sample(augment))`.
    They take uint8 (3, height, width) and return float32 (3, size, size). What they draw has the
    same distribution, save that torchvision also draws whether brightness or contrast comes first,
    and computes both on uint8: the values are rounded in between.
    """
    from torchvision.transforms import v2

    return v2.Compose(
        [
            v2.RandomResizedCrop(
                augment.size, scale=augment.scale, ratio=augment.ratio, antialias=True
            ),
            v2.RandomHorizontalFlip(augment.flip_share),
            v2.ColorJitter(augment.spread, augment.spread),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(augment.mean), list(augment.std)),
        ]
    )


@dataclass(frozen=True)
class Draws:
    """What is random in an augmentation, drawn for each sample of a batch."""

    windows: Tensor  # int64 (batch, 4): top, left, height and width of what is cut out, in pixels
    flips: Tensor  # bool (batch,)
    brightness: Tensor  # float32 (batch,), 1 leaves it as it is
    contrast: Tensor  # the same

    def to(self, device: torch.device | str) -> Draws:
        """Return the same draws on `device`; a copy to CUDA does not make the host wait."""
        # Other devices than CUDA may read the source after Python has freed it, and copy garbage.
        on_cuda, parts = torch.device(device).type == "cuda", list(vars(self).values())
        if on_cuda:
            parts = [part if part.is_cuda else part.pin_memory() for part in parts]
        return Draws(*(part.to(device, non_blocking=on_cuda) for part in parts))


def draw_windows(
    batch: int,
    size: Sequence[int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator | None = None,
) -> Tensor:
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

    Returns:
        int64 (batch, 4): top, left, height, width.

    Raises:
        ValueError: `scale` or `ratio` is no range of positive numbers.
    """
    areas, ratios = (
        torch.rand(batch, TRIES, generator=generator, device="cpu").numpy() for _ in range(2)
    )
    corners = torch.rand(batch, 2, generator=generator, device="cpu").numpy()
    windows = choose_windows(areas, ratios, corners, np.array([size]), scale, ratio)
    return torch.from_numpy(windows)


def crop_resize(images: Tensor, windows: Tensor, size: int) -> Tensor:
    """Cut a window out of each image and scale it to `size` by `size` pixels.

    Bilinear with antialias, the numbers of `torchvision.transforms.v2.functional.resized_crop` on
    float images; on uint8 images torchvision rounds the result, this does not. A window has a
    size of its own, so the scaling is two products with matrices of weights, one pair per sample:
    in float32 also under autocast. (TF32, if you allow it for products, rounds them.)

    Args:
        images: (batch, channels, height, width), uint8 or float32.
        windows: int64 (batch, 4) inside the images, on their device: top, left, height, width.
        size: pixels of a side.

    Returns:
        float32 (batch, channels, size, size), on the scale of the images.
    """
    top, left, height, width = windows[:, :, None, None].unbind(1)
    down = _weights(top, height, size, images.shape[-2])
    across = _weights(left, width, size, images.shape[-1])
    with torch.autocast(images.device.type, enabled=False):
        return down[:, None] @ images.float() @ across[:, None].mT


def _weights(first: Tensor, length: Tensor, size: int, pixels: int) -> Tensor:
    """Return float32 (batch, size, pixels): how much of each old pixel a new one takes."""
    new = torch.arange(size, device=first.device)[:, None] + 0.5
    old = torch.arange(pixels, device=first.device)
    ratio = length / size
    distance = (old + 0.5 - first - new * ratio).abs() / ratio.clamp(min=1)
    inside = (old >= first) & (old < first + length)
    weights = (1 - distance).clamp(min=0) * inside
    return weights / weights.sum(-1, keepdim=True)


def flip(images: Tensor, flips: Tensor) -> Tensor:
    """Swap left and right of the images (batch, channels, height, width) where `flips` is True."""
    return torch.where(_per_sample(flips), images.flip(-1), images)


def adjust(images: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Change brightness, then contrast, of float images of (batch, 3, height, width) in 0..1.

    Brightness multiplies; contrast stretches around the mean grey of the sample. Both clamp to
    0..1, as `adjust_brightness` and `adjust_contrast` of torchvision do.
    """
    bright = (images * _per_sample(brightness)).clamp(0, 1)
    grey = _constant(GREY, images.device)
    mean = (bright * grey).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    return torch.lerp(mean, bright, _per_sample(contrast)).clamp(0, 1)


def normalise(
    images: Tensor, mean: tuple[float, ...] = IMAGENET_MEAN, std: tuple[float, ...] = IMAGENET_STD
) -> Tensor:
    """Subtract the mean of each channel and divide by its standard deviation."""
    return (images - _constant(mean, images.device)) / _constant(std, images.device)


@lru_cache(maxsize=64)
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return one value per channel, float32 (channels, 1, 1); made once, since that waits."""
    return torch.tensor(values, device=device)[:, None, None]


def _per_sample(values: Tensor) -> Tensor:
    return values[:, None, None, None]
