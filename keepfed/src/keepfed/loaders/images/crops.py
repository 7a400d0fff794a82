"""Draw crops and flips that are the same in every thread, on every rank and after a restart.

The draws of a sample depend only on the seed, the epoch and the index of the sample. The samples do
not share a random generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = Sequence[int] | NDArray[np.int64]
Numbers = NDArray[np.float32]


# Mean and standard deviation of the channels of ImageNet, as torchvision's models expect them.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
TRIES = 10  # candidates for a crop, as in torchvision
_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio
_MULTIPLY = (30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, kw_only=True)
class Crops:
    """Random resized crops and flips with torchvision's distribution, drawn for each sample."""

    scale: tuple[float, float] = (0.08, 1.0)  # area of the window, as a share of the image
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width over height of the window
    flip_share: float = 0.5

    def draw(
        self, seed: int, epoch: int, indices: Indices, sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draw a window and a flip for each sample.

        Args:
            seed: Seed of the training. Each `epoch` has different draws.
            epoch: See `seed`.
            indices: Indices of the samples.
            sizes: Height and width of each image, (samples, 2).

        Returns:
            Windows in pixels, (samples, 4), as top, left, height and width, and flips, (samples,).
        """
        drawn = uniform(seed, epoch, indices, 2 * TRIES + 3)
        areas, ratios, corners, flips = np.split(drawn, [TRIES, 2 * TRIES, 2 * TRIES + 2], 1)
        windows = choose_windows(areas, ratios, corners, sizes, self.scale, self.ratio)
        return windows, flips[:, 0] < self.flip_share


@dataclass(frozen=True, kw_only=True)
class CenterCrop:
    """Centered squares without flips, for validation. Like `Resize(256)` and `CenterCrop(224)`."""

    share: float = 224 / 256  # side of the square, as a share of the shorter side of the image

    def draw(
        self, seed: int, epoch: int, indices: Indices, sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the window in the center, and False as flip, for each sample."""
        sides = np.rint(self.share * sizes.min(1, keepdims=True)).astype(np.int64).repeat(2, 1)
        places = np.rint((sizes - sides) / 2).astype(np.int64)  # as torchvision rounds
        return np.concatenate([places, sides], 1), np.zeros(len(sizes), bool)


def choose_windows(
    areas: Numbers,
    ratios: Numbers,
    corners: Numbers,
    sizes: NDArray[np.int64],
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> NDArray[np.int64]:
    """Map random numbers in 0..1 to windows, int64 (batch, 4), like `RandomResizedCrop`.

    The area is uniform in `scale` times the area of the image, and the logarithm of width over
    height is uniform in `ratio`. The first of `TRIES` windows that fits is used. If none fits, the
    largest centered window is used. NumPy is faster, because torch starts threads for `exp`.

    Args:
        areas: Random numbers, float32 (batch, TRIES), as `ratios`; `corners` are (batch, 2).
        ratios: See `areas`.
        corners: See `areas`.
        sizes: Height and width, (batch, 2), or (1, 2) if all images have the same size.
        scale: Smallest and largest share of the image.
        ratio: Smallest and largest width over height.

    Raises:
        ValueError: If `scale` or `ratio` is not a range of positive numbers.
    """
    for name, (low, high) in (("scale", scale), ("ratio", ratio)):
        if not 0 < low <= high:
            raise ValueError(f"`{name}` is ({low}, {high}), but must satisfy 0 < low <= high.")
    area = sizes.prod(1, keepdims=True) * between(areas, *scale)
    aspect = np.exp(between(ratios, log(ratio[0]), log(ratio[1])))
    tries = np.rint(np.sqrt([area / aspect, area * aspect])).astype(np.int64).transpose(1, 2, 0)
    fits = np.logical_and.reduce((tries > 0) & (tries <= sizes[:, None]), axis=2)
    first, found = fits.argmax(1), fits.any(1, keepdims=True)
    largest = np.minimum(sizes, np.rint(sizes[:, ::-1] * [1 / ratio[0], ratio[1]]).astype(np.int64))
    sides = np.where(found, tries[np.arange(len(tries)), first], largest)
    room = sizes - sides
    places = np.where(found, (corners * (room + 1)).astype(np.int64), room // 2)
    return np.concatenate([places, sides], 1)


def between(numbers: Any, low: float, high: float) -> Any:
    """Scale numbers from 0..1 to low..high."""
    return low + (high - low) * numbers


def uniform(seed: int, epoch: int, indices: Indices, count: int) -> NDArray[np.float32]:
    """Return `count` random numbers in 0..1 for each sample, float32 (samples, count).

    The generator is SplitMix64 (Steele, Lea and Flood 2014), with one stream per sample. Creating a
    NumPy generator for each sample would take a tenth of the time to decode a photograph.
    """
    key = np.zeros(1, np.uint64)
    for number in (np.uint64(seed), np.uint64(epoch), np.asarray(indices, np.uint64)):
        key = _mix(key + number + _STEP)
    drawn = _mix(key[:, None] + _STEP * np.arange(1, count + 1, dtype=np.uint64))
    return (drawn >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for bits, factor in _MULTIPLY:
        numbers = (numbers ^ (numbers >> np.uint64(bits))) * factor
    return numbers ^ (numbers >> np.uint64(31))
