"""Decode only the required part of a JPEG, at the required scale, into existing memory.

Restart markers split a JPEG into independent intervals. The intervals of a window are joined into a
smaller JPEG, and the others are not read. If a window is at least twice as large as the output, the
codec skips the high frequencies of each block of 8 x 8 pixels and decodes it to 4 x 4, 2 x 2 or one
pixel. This is called DCT scaling.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from keepfed.errors import required
from keepfed.loaders.images.packed import AGAIN, PackedImages
from keepfed.reading import reading

MARKS, END = bytes(range(0xD0, 0xD8)), 0xD9  # the eight restart markers, and the end marker
_UNDOCUMENTED = "_upsample_bilinear2d_aa"  # function in torch._C._nn
FACTORS = 8, 4, 2  # DCT scaling (other factors are not faster than full decoding)


class Window(NamedTuple):
    """The part of an image that a sample contains, in pixels."""

    top: int
    left: int
    height: int
    width: int


def scaling(height: int, width: int, size: int) -> int:
    """Return the factor by which a window may be decoded smaller for an output of `size`."""
    return next((factor for factor in FACTORS if min(height, width) >= factor * size), 1)


class Decoder:
    """Decoder for windows of packed images. Only one thread may use it at a time.

    It also resizes and flips the windows. The result equals torchvision's bit for bit, unless a
    window is reduced by a factor of 2 or more. Then it is first decoded at a smaller scale, which
    changes a pixel of a photograph by one level of 255 on average, a quarter of antialiasing.

    With `resize`, the window must be the whole image. It is resized until its shorter side has
    `resize` pixels, and the center is cropped.
    """

    def __init__(
        self,
        images: PackedImages,
        size: int,
        *,
        resize: int | None = None,
        norm: tuple[Tensor, Tensor] | None = None,
    ):
        """Allocate memory for the largest image, which all calls reuse.

        `size` are the pixels of a side of the output. `norm` has factor and shift of each of its
        rows, float32 (3, 1, size).
        """
        self.images, self.size, self.resize = images, size, resize
        self.norm = norm
        pixels = images.table["height"].astype(np.int64) * images.table["width"]
        self._decoded = np.empty(3 * int(pixels.max()), np.uint8)
        self._copy = np.zeros(self._decoded.size, np.uint8)
        self._resized = torch.empty(size, size, 3, dtype=torch.uint8, device="cpu").permute(2, 0, 1)

    def write(self, index: int, window: Window, flip: bool, out: Tensor) -> None:
        """Write a window of an image into `out`, or raise ReadError if the image is corrupted.

        `out` has the shape (3, size, size), channels last, uint8 or, with `norm`, float32. Left and
        right are swapped with `flip`, which `resize` ignores.
        """
        factor = scaling(window.height, window.width, self.resize or self.size)
        pixels, first, start = self._decode_window(index, factor, window)
        resized = out if self.norm is None else self._resized
        if self.resize:
            resized.copy_(self._center(pixels, factor, window))
        else:
            top, left, height, width = window
            edges = top - first, left - start, top - first + height, left - start + width
            first, start, last, end = (edge // factor for edge in edges)
            part = pixels[first:last, start:end]
            copy = self._copy[: part.size].reshape(part.shape)  # torch needs contiguous pixels
            if flip:
                required("cv2").flip(part, 1, dst=copy)
            else:
                copy[:] = part
            _resize_into()(_batch_of(copy), [self.size] * 2, False, None, None, out=resized[None])
        if self.norm is not None:
            scale, shift = self.norm
            torch.addcmul(shift, out.copy_(resized), scale, out=out)

    def _center(self, pixels: NDArray[np.uint8], factor: int, window: Window) -> Tensor:
        """Return the center of a resized image, uint8 (3, size, size)."""
        sides, short = (window.height, window.width), self.resize or self.size
        scaled = [short * side // min(sides) for side in sides]
        # The last pixels of a scaled image may extend beyond the image, so give the remaining scale
        # instead of the size. It is slightly larger, so that rounding loses no row.
        more = [factor * b / a * (1 + 1e-9) for a, b in zip(sides, scaled, strict=True)]
        target: dict[str, Any] = {"size": scaled} if factor == 1 else {"scale_factor": more}
        resized = interpolate(_batch_of(pixels), mode="bilinear", antialias=True, **target)
        top, left = (round((side - self.size) / 2) for side in scaled)
        return resized[0, :, top : top + self.size, left : left + self.size]

    def _decode_window(
        self, index: int, factor: int, window: Window
    ) -> tuple[NDArray[np.uint8], int, int]:
        """Return a window, reduced by `factor`, and its first row and column in the full image."""
        from simplejpeg import decode_jpeg

        jpeg, rows, columns = self._partial_jpeg(index, factor, window)
        with reading(self.images.path, index, step=AGAIN):
            pixels = decode_jpeg(
                jpeg,
                min_height=-(-len(rows) // factor),
                min_width=-(-len(columns) // factor),
                min_factor=factor,
                buffer=self._decoded,
            )
        return pixels, rows.start, columns.start

    def _partial_jpeg(
        self, index: int, factor: int, window: Window
    ) -> tuple[memoryview | bytearray, range, range]:
        """Return a JPEG with the intervals of a window and a margin, and its rows and columns.

        Its frame header gets a new height and width, and its markers are numbered again.
        """
        row, content = self.images.read(index)
        jpeg, across, at = content[: row.length].data, row.across, row.frame_at
        if not row.intervals:
            return jpeg, range(row.height), range(row.width)
        top, left, height, width = window
        margin = 2 * factor  # because neighboring pixels may share their color
        wide, high = row.part_width, row.part_height
        first, start = max(0, top - margin) // high, max(0, left - margin) // wide
        last = min(row.intervals // across, -(-(top + height + margin) // high))
        end = min(across, -(-(left + width + margin) // wide))
        places = content[row.length :].view(np.uint32)
        head = int(places[0])
        wanted = places[first * across : last * across + 1].astype(np.int64)
        ends = wanted[1:].reshape(-1, across)[:, start:end]  # ends of all required intervals
        begins, stops = wanted[start:-1:across], ends[:, -1]  # begin and end of the run in each row
        # np.concatenate would release and acquire the GIL for each run
        runs = [jpeg[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
        part = bytearray().join([jpeg[:head], *runs])
        moved = (stops - begins).cumsum() + (head - stops)
        # a photograph has thousands of markers, and a loop over them would block the other threads
        marks = np.frombuffer(MARKS * ceil(ends.size / 8), np.uint8, ends.size)
        np.frombuffer(part, np.uint8)[ends + (moved[:, None] - 1)] = marks.reshape(ends.shape)
        part[-1] = END
        rows = range(first * high, min(row.height, last * high))
        columns = range(start * wide, min(row.width, end * wide))
        part[at : at + 4] = (len(rows) << 16 | len(columns)).to_bytes(4)
        return part, rows, columns


@cache
def _resize_into() -> Callable[..., object]:
    """Return the function with which `interpolate` resizes with antialias. It accepts `out`.

    `interpolate` allocates memory for each result, and the system clears each page of it. With two
    threads, this costs a quarter of the throughput.
    """
    found: Callable[..., object] = getattr(torch._C._nn, _UNDOCUMENTED, _resize_publicly)
    return found


def _resize_publicly(
    image: Tensor, size: list[int], _align: bool, *_scales: None, out: Tensor
) -> None:
    """Resize with public functions, for versions of torch without the private one."""
    out.copy_(interpolate(image, size, mode="bilinear", antialias=True))


def _batch_of(image: NDArray[np.uint8]) -> Tensor:
    """Return a contiguous image (rows, columns, 3) as a batch (1, 3, rows, columns), uncopied."""
    # NumPy adds the batch axis, because torch would then not recognize the channels-last layout
    return torch.from_numpy(image.transpose(2, 0, 1)[None])
