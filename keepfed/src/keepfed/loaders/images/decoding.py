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

from keepfed.loaders.images.packed import PackedImages

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

    It also resizes and flips the windows. The result equals torchvision's result for the whole
    image bit for bit, with one exception. A window that is reduced by a factor of 2 or more is
    first decoded at a smaller scale and then resized. On photographs, this changes a pixel by one
    level of 255 on average, which is a quarter of the effect of antialiasing.

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

        Args:
            images: The packed images.
            size: Height and width of the output.
            resize: As described above.
            norm: Factor and shift for every row of the output, float32 (3, 1, size).
        """
        self.images, self.size, self.resize = images, size, resize
        self.norm = norm
        pixels = images.table["height"].astype(np.int64) * images.table["width"]
        self._decoded = np.empty(3 * int(pixels.max()), np.uint8)
        self._copy = np.zeros(self._decoded.size, np.uint8)
        self._resized = torch.empty(size, size, 3, dtype=torch.uint8, device="cpu").permute(2, 0, 1)

    def write(self, index: int, window: Window, flip: bool, out: Tensor) -> None:
        """Write a window of an image into `out`.

        Args:
            index: Index of the image.
            window: Part of the image.
            flip: Whether left and right are swapped. Ignored with `resize`.
            out: Output of shape (3, size, size), channels last, uint8 or, with `norm`, float32.

        Raises:
            OSError: If the image is corrupted.
        """
        resized = out if self.norm is None else self._resized
        if self.resize:
            resized = self._center(index)
        else:
            self._fill(resized, index, window, flip)
        if resized is not out:
            out.copy_(resized)
        if self.norm is not None:
            factor, shift = self.norm
            torch.addcmul(shift, out, factor, out=out)

    def _fill(self, out: Tensor, index: int, window: Window, flip: bool) -> None:
        """Resize a window into `out`, uint8 (3, size, size) in channels-last layout."""
        top, left, height, width = window
        factor = scaling(height, width, self.size)
        pixels, first, start = self._decode_window(index, factor, window)
        edges = top - first, left - start, top - first + height, left - start + width
        first, start, last, end = (edge // factor for edge in edges)
        part = pixels[first:last, start:end]
        copy = self._copy[: part.size].reshape(part.shape)  # torch needs contiguous pixels
        if flip:
            _mirror(part, copy)
        else:
            copy[:] = part
        _resize_into()(_batch_of(copy), [self.size] * 2, False, None, None, out=out[None])

    def _center(self, index: int) -> Tensor:
        """Return the center of a resized image, uint8 (3, size, size)."""
        row = self.images.row(index)
        sizes, short = (row.height, row.width), self.resize or self.size
        scaled = [short * side // min(sizes) for side in sizes]
        factor = scaling(*sizes, short)
        whole, _, _ = self._decode_window(index, factor, Window(0, 0, *sizes))
        # The last pixels of a scaled image may extend beyond the image, so give the remaining scale
        # instead of the size. It is slightly larger, so that rounding loses no row.
        more = [factor * b / a * (1 + 1e-9) for a, b in zip(sizes, scaled, strict=True)]
        target: dict[str, Any] = {"size": scaled} if factor == 1 else {"scale_factor": more}
        resized = interpolate(_batch_of(whole), mode="bilinear", antialias=True, **target)
        top, left = (round((side - self.size) / 2) for side in scaled)
        return resized[0, :, top : top + self.size, left : left + self.size]

    def _decode_window(
        self, index: int, factor: int, window: Window
    ) -> tuple[NDArray[np.uint8], int, int]:
        """Decode the intervals of a window, reduced by `factor`.

        Returns:
            Pixels, and their first row and column in the full image, both multiples of `factor`.
        """
        from simplejpeg import decode_jpeg

        jpeg, rows, columns = self._partial_jpeg(index, factor, window)
        try:
            pixels = decode_jpeg(
                jpeg,
                min_height=-(-len(rows) // factor),
                min_width=-(-len(columns) // factor),
                min_factor=factor,
                buffer=self._decoded,
            )
        except ValueError as error:
            raise OSError(
                f"Image {index} of {self.images.path} cannot be decoded ({error}). Pack the images "
                "again with `pack_images`."
            ) from error
        return pixels, rows.start, columns.start

    def _partial_jpeg(
        self, index: int, factor: int, window: Window
    ) -> tuple[memoryview | bytearray, range, range]:
        """Return a JPEG with a window and a margin, and the rows and columns that it contains.

        The JPEG consists of the required intervals only. Therefore its frame header gets a new
        height and width, and its restart markers are numbered again.
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
    threads, this costs a quarter of the loader's throughput. The same function in torch.ops.aten
    holds the GIL longer, which costs 2.5 % of the throughput.
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


def _mirror(image: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Write an image with left and right swapped to `out`."""
    from cv2 import flip

    flip(image, 1, dst=out)
