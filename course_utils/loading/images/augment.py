"""Augment a whole batch at once, with separate random parameters for every sample.

    augment = Augment(size=224)
    draws = augment.draw(images.shape, generator=torch.Generator().manual_seed(epoch))
    batch = augment(images, draws.to(images.device))    # uint8 in, float32 out, on their device

Drawing the parameters is separate from applying them. The same draws give the same images on the
CPU and on the device, for single samples and for batches. It uses only torch, without a loop over
samples. `per_sample` does the same for single samples, in workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keepfed.loaders.images.crops import IMAGENET_MEAN, IMAGENET_STD, TRIES, between, choose_windows

GRAY = (0.2989, 0.587, 0.114)  # torchvision's weights of red, green and blue


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random resized crop, flip, brightness, contrast and normalization of a batch."""

    size: int = 224  # side of the result in pixels
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip_share: float = 0.5
    spread: float = 0.3  # largest change of brightness and contrast

    def draw(self, shape: torch.Size, *, generator: torch.Generator | None = None) -> AugmentParams:
        """Draw parameters for images of `shape` (batch, channels, height, width).

        Windows are drawn as by torchvision's `RandomResizedCrop`. A CPU generator gives the same
        parameters for every device.

        Raises:
            ValueError: If `scale` or `ratio` is not a range of positive numbers.
        """
        batch, _, *size = shape
        low, high = max(0.0, 1 - self.spread), 1 + self.spread
        draws = partial(torch.rand, generator=generator, device="cpu")
        factors = [between(draws(batch), low, high) for _ in range(2)]
        areas, ratios, corners = (draws(batch, count).numpy() for count in (TRIES, TRIES, 2))
        sizes = np.array([size])
        windows = choose_windows(areas, ratios, corners, sizes, self.scale, self.ratio)
        return AugmentParams(torch.from_numpy(windows), draws(batch) < self.flip_share, *factors)

    def __call__(self, images: Tensor, draws: AugmentParams | None = None) -> Tensor:
        """Return float32 (batch, 3, size, size) on the device of the images.

        Args:
            images: uint8 tensor of shape (batch, 3, height, width).
            draws: Parameters, on the same device. None draws new ones.

        Raises:
            ValueError: If `images` is not a uint8 batch with three color channels.
        """
        draws = draws or self.draw(_checked(images).shape).to(images.device)
        return normalize(self.visible(images, draws))

    def visible(self, images: Tensor, draws: AugmentParams) -> Tensor:
        """Return the augmented images before normalization: values in 0..1, for display."""
        cropped = crop_resize(_checked(images), draws.windows, self.size) / 255
        return adjust(flip(cropped, draws.flips), draws.brightness, draws.contrast)


def _checked(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(
            f"The images are {images.dtype} of shape {tuple(images.shape)}. Pass a uint8 batch of "
            "shape (batch, 3, height, width), as decoded."
        )
    return images


def per_sample(augment: Augment) -> Any:
    """Return torchvision transforms that do the same as `augment`, for a single image.

    Pass them to the dataset of the workers: `Jpegs(folder, per_sample(augment))`. They turn uint8
    (3, height, width) into float32 (3, size, size). Their parameters have the same distribution.
    However, torchvision draws the order of brightness and contrast too, and computes both in uint8,
    which rounds the values in between.
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
            v2.Normalize(list(IMAGENET_MEAN), list(IMAGENET_STD)),
        ]
    )


@dataclass(frozen=True)
class AugmentParams:
    """Random parameters of an augmentation, for each sample of a batch."""

    windows: Tensor  # int64 (batch, 4): top, left, height and width of the crop, pixels
    flips: Tensor  # bool (batch,)
    brightness: Tensor  # float32 (batch,); 1 means no change
    contrast: Tensor  # float32 (batch,); 1 means no change

    def to(self, device: torch.device | str) -> AugmentParams:
        """Return the parameters on `device`. A copy to CUDA does not block the host."""
        # Devices other than CUDA may read the source after Python has freed it.
        on_cuda, parts = torch.device(device).type == "cuda", list(vars(self).values())
        if on_cuda:
            parts = [part if part.is_cuda else part.pin_memory() for part in parts]
        return AugmentParams(*(part.to(device, non_blocking=on_cuda) for part in parts))


def crop_resize(images: Tensor, windows: Tensor, size: int) -> Tensor:
    """Crop a window from each image and resize it to `size` by `size` pixels.

    Bilinear with antialiasing, with the same values as `resized_crop` of
    `torchvision.transforms.v2.functional` for float images (torchvision rounds uint8 images).
    Windows differ in size, so each sample is multiplied by two weight matrices, in float32 even
    under autocast. (If you allow TF32 for matrix products, it rounds them.)

    Args:
        images: (batch, channels, height, width), uint8 or float32.
        windows: int64 (batch, 4) inside the images, on their device: top, left, height, width.
        size: Side of the result in pixels.

    Returns:
        float32 (batch, channels, size, size), in the value range of the images.
    """
    top, left, height, width = windows[:, :, None, None].unbind(1)
    down = _weights(top, height, size, images.shape[-2])
    across = _weights(left, width, size, images.shape[-1])
    with torch.autocast(images.device.type, enabled=False):
        return down[:, None] @ images.float() @ across[:, None].mT


def _weights(first: Tensor, length: Tensor, size: int, pixels: int) -> Tensor:
    """Return the weight of each input pixel for each output pixel, (batch, size, pixels)."""
    new = torch.arange(size, device=first.device)[:, None] + 0.5
    old = torch.arange(pixels, device=first.device)
    ratio = length / size
    distance = (old + 0.5 - first - new * ratio).abs() / ratio.clamp(min=1)
    inside = (old >= first) & (old < first + length)
    weights = (1 - distance).clamp(min=0) * inside
    return weights / weights.sum(-1, keepdim=True)


def flip(images: Tensor, flips: Tensor) -> Tensor:
    """Mirror the images (batch, channels, height, width) whose `flips` is True."""
    return torch.where(_per_sample(flips), images.flip(-1), images)


def adjust(images: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Change brightness, then contrast, of float images (batch, 3, height, width) in 0..1.

    Brightness multiplies. Contrast scales around the mean gray of the sample. Both clamp to 0..1,
    like torchvision's `adjust_brightness` and `adjust_contrast`.
    """
    bright = (images * _per_sample(brightness)).clamp(0, 1)
    gray = _constant(GRAY, images.device)
    mean = (bright * gray).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    return torch.lerp(mean, bright, _per_sample(contrast)).clamp(0, 1)


def normalize(images: Tensor) -> Tensor:
    """Subtract ImageNet's mean of each channel, and divide by its standard deviation."""
    mean, std = (_constant(values, images.device) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (images - mean) / std


@lru_cache(maxsize=64)
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return float32 (channels, 1, 1); cached, because creating it makes the host wait."""
    return torch.tensor(values, device=device)[:, None, None]


def _per_sample(values: Tensor) -> Tensor:
    return values[:, None, None, None]
