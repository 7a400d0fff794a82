"""Decode the part of a JPEG that is needed, at the size that is needed, into memory that is there.

Between restart markers a JPEG is a row of pieces that do not know of each other. Those of a window
make a smaller JPEG, and the others are not looked at. Where a window is at least twice as large as
what becomes of it, the codec leaves out the fine parts of each block of 8 x 8 pixels and decodes
4 x 4, 2 x 2 or one: DCT scaling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from course_utils.loading.images.packed import INDEX, PackedImages

# torch.nn.functional.interpolate calls these, but gives each result new memory, in another layout.
RESIZE = {
    True: torch.ops.aten._upsample_bilinear2d_aa.out,
    False: torch.ops.aten.upsample_bilinear2d.out,
}
RESTART, END = 0xD0, 0xD9  # markers
FACTORS = 8, 4, 2  # of DCT scaling; others are not faster than to decode all
SERIAL = 32_767  # numbers that an operation does not share out among the threads of torch


def scaling(height: int, width: int, size: int) -> int:
    """Return how many times smaller a window may be decoded that is to have `size` by `size`."""
    return next((factor for factor in FACTORS if min(height, width) >= factor * size), 1)


class Decoder:
    """Cut windows out of packed images, scale them and write them; for one thread at a time.

    A window is, bit for bit, what torchvision makes of the whole image. There is one exception:
    with `antialias` a window that is to become smaller by 2 or more is decoded smaller, and only
    then resized. On photographs that changes a pixel by one level of 255 on average, a quarter of
    what antialiasing itself does. Without antialiasing each new pixel mixes the four that are
    nearest to it and misses what lies between, so nothing can be decoded smaller.
    """

    def __init__(self, images: PackedImages, size: int, *, antialias: bool):
        """Take memory for the largest image."""
        self.images, self.size, self.antialias = images, size, antialias
        self._resize = RESIZE[antialias]
        pixels = images.table["height"].astype(np.int64) * images.table["width"]
        self._room = np.empty(
            3 * int(pixels.max()), np.uint8
        )  # used again, as new pages are cleared first
        self._marks = np.resize(range(RESTART, RESTART + 8), images.table["intervals"].max())
        self._resized = torch.empty(1, size, size, 3, dtype=torch.uint8).permute(0, 3, 1, 2)

    def write(
        self,
        index: int,
        window: Sequence[int],
        flip: bool,
        out: Tensor,
        norm: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Write a window of an image into `out`.

        Args:
            index: of the image.
            window: top, left, height and width, in pixels.
            flip: whether left and right are swapped.
            out: (3, size, size), of whatever layout; uint8, or float32 if there is a norm.
            norm: a factor and what is added to the product, float32 (3, rows, size), laid out as
                `out` is: as many rows at a time are normalised.

        Raises:
            OSError: the image is not as it was written.
        """
        plain = norm is None and not flip and out.stride() == self._resized.stride()[1:]
        resized = out[None] if plain else self._resized
        self._resize(self._cut(index, *window), [self.size] * 2, False, out=resized)
        if plain:
            return
        step = SERIAL // (3 * self.size) if norm is None else norm[0].shape[1]
        for row in range(0, self.size, step):
            new, part = out[:, row : row + step], resized[0, :, row : row + step]
            new.copy_(part.flip(-1) if flip else part)
            if norm is not None:
                factor, shift = (values[:, : new.shape[1]] for values in norm)
                torch.addcmul(shift, new, factor, out=new)

    def _cut(self, index: int, top: int, left: int, height: int, width: int) -> Tensor:
        """Return a window, uint8 (1, 3, rows, columns), perhaps decoded smaller."""
        from simplejpeg import decode_jpeg, decode_jpeg_header

        factor = scaling(height, width, self.size) if self.antialias else 1
        jpeg, first, start = self._part(index, top, left, height, width, margin=2 * factor)
        try:
            rows, columns, *_ = decode_jpeg_header(jpeg)
            pixels = decode_jpeg(
                jpeg,
                min_height=-(-rows // factor),
                min_width=-(-columns // factor),
                min_factor=factor,
                buffer=self._room,
            )
        except ValueError as error:
            raise OSError(
                f"Image {index} of {self.images.path} cannot be decoded ({error}); pack the images "
                "again."
            ) from error
        edges = top - first, left - start, top - first + height, left - start + width
        first, start, last, end = (edge // factor for edge in edges)
        # torch would copy it too, but share that out among threads, which wait for each other
        window = np.ascontiguousarray(pixels[first:last, start:end])
        return torch.from_numpy(window).permute(2, 0, 1)[None]

    def _part(
        self, index: int, top: int, left: int, height: int, width: int, *, margin: int
    ) -> tuple[NDArray[np.uint8], int, int]:
        """Return a JPEG with a window and a margin around it, and its first row and column.

        The intervals that are wanted follow each other as if they were all there are. So the frame
        has to say how many rows and columns that makes, and the markers have to count anew.
        """
        jpeg, fields = self.images[index], self.images.table[index].item()  # numbers of Python
        row = dict(zip(INDEX.names or (), fields, strict=True))
        if not row["intervals"]:
            return jpeg, 0, 0
        places, across, at = self.images.places(index), row["across"], row["frame_at"]
        wide, high = row["part_width"], row["part_height"]
        first, start = max(0, top - margin) // high, max(0, left - margin) // wide
        last = min(row["intervals"] // across, -(-(top + height + margin) // high))
        end = min(across, -(-(left + width + margin) // wide))
        begins, ends = (
            some.reshape(-1, across)[first:last, start:end] for some in (places[:-1], places[1:])
        )
        runs = zip(begins[:, 0].tolist(), ends[:, -1].tolist(), strict=True)
        part = np.concatenate([jpeg[: places[0]], *(jpeg[a:b] for a, b in runs)])
        marks = np.cumsum(ends - begins) + (int(places[0]) - 1)
        part[marks] = self._marks[: len(marks)]
        part[-1] = END
        rows = min(row["height"], last * high) - first * high
        columns = min(row["width"], end * wide) - start * wide
        part[at : at + 4] = *divmod(rows, 256), *divmod(columns, 256)
        return part, first * high, start * wide
