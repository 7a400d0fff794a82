"""Decode, crop and resize JPEGs at the required scale, in memory that all images reuse.

If a window is at least twice as large as the output, the codec skips the high frequencies of each
block of 8 x 8 pixels and decodes it to 4 x 4, 2 x 2 or one pixel. This is called DCT scaling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from keepfed.loaders.images.packed import AGAIN, PackedImages
from keepfed.reading import reading

FACTORS = 8, 4, 2  # DCT scaling (other factors are not faster than full decoding)


def scaling(height: int, width: int, size: int) -> int:
    """Return the factor by which a window may be decoded smaller for an output of `size`."""
    return next((factor for factor in FACTORS if min(height, width) >= factor * size), 1)


class Decoder:
    """Decoder for windows of packed images. Only one thread may use it at a time.

    It also resizes and flips the windows. The result equals torchvision's bit for bit, unless a
    window is reduced by a factor of 2 or more. Then it is first decoded at a smaller scale, which
    changes a pixel of a photograph by one level of 255 on average, a quarter of antialiasing.
    """

    def __init__(self, images: PackedImages, size: int, norm: tuple[Tensor, Tensor] | None = None):
        """Allocate memory for the largest image, which all calls reuse.

        `size` are the pixels of a side of the output. `norm` has factor and shift of each of its
        rows, float32 (3, 1, size).
        """
        self.images, self.size, self.norm = images, size, norm
        self._decoded = np.empty(3 * images.most_pixels, np.uint8)

    def write(self, index: int, window: Sequence[int], flip: bool, out: Tensor) -> None:
        """Write a window of an image into `out`, or raise ReadError if the image is corrupted.

        A window is top, left, height and width, in pixels. `out` has the shape (3, size, size),
        channels last, uint8 or, with `norm`, float32. Left and right are swapped with `flip`.
        """
        factor = scaling(window[2], window[3], self.size)
        top, left, height, width = (edge // factor for edge in window)
        pixels = self._decode(index, factor)[top : top + height, left : left + width]
        # contiguous, so that torch recognizes the layout channels_last and is three times as fast
        batch = torch.from_numpy(np.ascontiguousarray(pixels))[None].permute(0, 3, 1, 2)
        resized = interpolate(batch, [self.size] * 2, mode="bilinear", antialias=True)[0]
        out.copy_(resized.flip(-1) if flip else resized)
        if self.norm is not None:
            scale, shift = self.norm
            torch.addcmul(shift, out, scale, out=out)

    def _decode(self, index: int, factor: int) -> NDArray[np.uint8]:
        """Return a complete image, reduced by `factor`, uint8 (rows, columns, 3)."""
        from simplejpeg import decode_jpeg

        jpeg, row = self.images[index], self.images.table[index]
        with reading(self.images.path, index, step=AGAIN):
            pixels: NDArray[np.uint8] = decode_jpeg(
                jpeg.data,
                min_height=-(-int(row["height"]) // factor),
                min_width=-(-int(row["width"]) // factor),
                min_factor=factor,
                buffer=self._decoded,
            )
        return pixels
