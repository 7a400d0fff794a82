"""Draw which part of an image a sample is, and whether it is flipped: the same in any thread.

The draws of a sample depend on the seed, the epoch and its index, and on nothing else: no generator
is handed from one sample to the next. So they do not change with the number of threads or ranks, or
when training goes on after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_utils.loading.images.augment import TRIES, choose_windows

Indices = Sequence[int] | NDArray[np.int64]
_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio
_MULTIPLY = (30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, kw_only=True)
class Crops:
    """Random resized crops and flips, as torchvision draws them, a set for each sample."""

    scale: tuple[float, float] = (0.08, 1.0)  # area of the window, as a share of the image
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width over height of the window
    flip_share: float = 0.5

    def draw(
        self, seed: int, epoch: int, indices: Indices, sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draw for the samples at `indices` in one epoch.

        Args:
            seed: of the training.
            epoch: in which the samples have other draws.
            indices: of the samples.
            sizes: (samples, 2): height and width of each image.

        Returns:
            Windows, (samples, 4): top, left, height and width in pixels; and flips, (samples,):
            whether left and right of the window are swapped.
        """
        drawn = uniform(seed, epoch, indices, 2 * TRIES + 3)
        areas, ratios, corners, flips = np.split(drawn, [TRIES, 2 * TRIES, 2 * TRIES + 2], 1)
        windows = choose_windows(areas, ratios, corners, sizes, self.scale, self.ratio)
        return windows, flips[:, 0] < self.flip_share


@dataclass(frozen=True, kw_only=True)
class CentreCrop:
    """The middle of each image and no flip, for validation: `Resize` and `CenterCrop` there."""

    resize: int = 256  # pixels of the shorter side, of which the middle is taken

    def draw(
        self, seed: int, epoch: int, indices: Indices, sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return whole images as windows, and no flips, as `Crops.draw` does."""
        return np.concatenate([np.zeros_like(sizes), sizes], 1), np.zeros(len(sizes), bool)


def uniform(seed: int, epoch: int, indices: Indices, count: int) -> NDArray[np.float32]:
    """Return `count` numbers in 0..1 for each sample, float32 (samples, count).

    SplitMix64 (Steele, Lea and Flood 2014), with a stream for each sample: a generator of NumPy for
    each would take as long to make as a tenth of a photograph takes to decode.
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
