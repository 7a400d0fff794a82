"""Decode the part of a JPEG that is needed, at the size that is needed, into memory that is there.

Between restart markers a JPEG is a row of pieces that do not know of each other. Those of a window
make a smaller JPEG, and the others are not looked at. Where a window is at least twice as large as
what becomes of it, the codec leaves out the fine parts of each block of 8 x 8 pixels and decodes
4 x 4, 2 x 2 or one: DCT scaling.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from keepfed.loaders.images.packed import PackedImages

MARKS, END = bytes(range(0xD0, 0xD8)), 0xD9  # of restarts, which count to eight; of the end
_UNDOCUMENTED = "_upsample_bilinear2d_aa"  # of torch._C._nn
FACTORS = 8, 4, 2  # of DCT scaling; others are not faster than to decode all


class Window(NamedTuple):
    """The part of an image that a sample shows, in pixels."""

    top: int
    left: int
    height: int
    width: int


def scaling(height: int, width: int, size: int) -> int:
    """Return how many times smaller a window may be decoded that is to have `size` by `size`."""
    return next((factor for factor in FACTORS if min(height, width) >= factor * size), 1)


class Decoder:
    """Cut windows out of packed images, scale them and write them; for one thread at a time.

    With `antialias` a window is, bit for bit, what torchvision makes of the whole image. There is
    one exception: a window that is to become smaller by 2 or more is decoded smaller, and only then
    resized. On photographs that changes a pixel by one level of 255 on average, a quarter of what
    antialiasing itself does.

    Without antialiasing OpenCV resizes, in two thirds of the time: each new pixel mixes the four
    that are nearest to it and misses what lies between, so nothing can be decoded smaller. No pixel
    is more than one level from what torchvision makes with antialias=False.

    With `resize` the window has to be the whole image: it is scaled until its shorter side has that
    many pixels, and the middle is taken. Of what lies outside of the middle, nothing is decoded.
    """

    def __init__(
        self, images: PackedImages, size: int, *, antialias: bool, resize: int | None = None
    ):
        """Take memory for the largest image, used again as new pages are cleared first."""
        self.images, self.size, self.antialias, self.resize = images, size, antialias, resize
        pixels = images.table["height"].astype(np.int64) * images.table["width"]
        self._room = np.empty(3 * int(pixels.max()), np.uint8)
        self._copy = np.zeros(self._room.size, np.uint8)
        self._resized = torch.empty(size, size, 3, dtype=torch.uint8, device="cpu").permute(2, 0, 1)

    def write(
        self,
        index: int,
        window: Window,
        flip: bool,
        out: Tensor,
        norm: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Write a window of an image into `out`.

        Args:
            index: of the image.
            window: the part of the image that is shown.
            flip: whether left and right are swapped; whole images that are resized are not.
            out: (3, size, size), of whatever layout; uint8, or float32 if there is a norm.
            norm: a factor and what is added to the product, float32 (3, 1, size): for every row.

        Raises:
            OSError: the image is not as it was written.
        """
        if self.resize:
            resized = self._middle(index)
        else:
            as_it_is = norm is None and out.stride() == self._resized.stride()
            resized = out if as_it_is else self._resized
            self._fill(resized, index, window, flip)
        if resized is not out:
            out.copy_(resized)
        if norm is not None:
            factor, shift = norm
            torch.addcmul(shift, out, factor, out=out)

    def _fill(self, out: Tensor, index: int, window: Window, flip: bool) -> None:
        """Resize a window into `out`, uint8 (3, size, size), in which colours lie side by side."""
        top, left, height, width = window
        factor = scaling(height, width, self.size) if self.antialias else 1
        pixels, first, start = self._cut(index, factor, window)
        edges = top - first, left - start, top - first + height, left - start + width
        first, start, last, end = (edge // factor for edge in edges)
        part = pixels[first:last, start:end]
        if flip or self.antialias:  # torch wants no gaps: so to flip the pixels costs no more
            copy = self._copy[: part.size].reshape(part.shape)
            if flip:
                _mirror(part, copy)
            else:
                copy[:] = part
            part = copy
        if self.antialias:
            _resize_into()(_batch_of(part), [self.size] * 2, False, None, None, out=out[None])
        else:
            _mix_four(part, out.permute(1, 2, 0).numpy())

    def _middle(self, index: int) -> Tensor:
        """Return the middle of a resized image, uint8 (3, size, size)."""
        row = self.images.row(index)
        sizes, short = (row.height, row.width), self.resize or self.size
        scaled = [short * side // min(sizes) for side in sizes]
        factor = scaling(*sizes, short) if self.antialias else 1
        places = [round((side - self.size) / 2) for side in scaled]
        (top, end), (left, right) = (
            _reach(range(at, at + self.size), old, new, factor)
            for at, old, new in zip(places, sizes, scaled, strict=True)
        )
        window = Window(top, left, end - top, right - left)
        pixels, first, start = self._cut(index, factor, window)
        shape = -(-sizes[0] // factor), -(-sizes[1] // factor), 3
        whole = self._copy[: shape[0] * shape[1] * 3].reshape(shape)
        first, start = first // factor, start // factor
        whole[first : first + pixels.shape[0], start : start + pixels.shape[1]] = pixels
        if self.antialias:
            # decoded smaller, the last pixels may reach beyond the image: so say how much is left
            # to do, and a hair more, as rounding must not lose a row
            more = [factor * b / a * (1 + 1e-9) for a, b in zip(sizes, scaled, strict=True)]
            target: dict[str, Any] = {"size": scaled} if factor == 1 else {"scale_factor": more}
            resized = interpolate(_batch_of(whole), mode="bilinear", antialias=True, **target)
        else:
            smaller = np.empty((*scaled, 3), np.uint8)
            _mix_four(whole, smaller)
            resized = _batch_of(smaller)
        top, left = places
        return resized[0, :, top : top + self.size, left : left + self.size]

    def _cut(self, index: int, factor: int, window: Window) -> tuple[NDArray[np.uint8], int, int]:
        """Decode what holds a window, `factor` times smaller; return its first row and column too.

        These two count pixels of the image, and are multiples of `factor`.
        """
        from simplejpeg import decode_jpeg

        jpeg, rows, columns = self._part(index, factor, window)
        try:
            pixels = decode_jpeg(
                jpeg,
                min_height=-(-len(rows) // factor),
                min_width=-(-len(columns) // factor),
                min_factor=factor,
                buffer=self._room,
            )
        except ValueError as error:
            raise OSError(
                f"Image {index} of {self.images.path} cannot be decoded ({error}); pack the images "
                "again."
            ) from error
        return pixels, rows.start, columns.start

    def _part(
        self, index: int, factor: int, window: Window
    ) -> tuple[memoryview | bytearray, range, range]:
        """Return a JPEG with a window and a margin around it, and which rows and columns it holds.

        The intervals that are wanted follow each other as if they were all there are. So the frame
        has to say how many rows and columns that makes, and the markers have to count anew.
        """
        row, content = self.images.read(index)
        jpeg, across, at = content[: row.length].data, row.across, row.frame_at
        if not row.intervals:
            return jpeg, range(row.height), range(row.width)
        top, left, height, width = window
        margin = 0 if _colours_apart(jpeg[at:], factor) else 2 * factor
        wide, high = row.part_width, row.part_height
        first, start = max(0, top - margin) // high, max(0, left - margin) // wide
        last = min(row.intervals // across, -(-(top + height + margin) // high))
        end = min(across, -(-(left + width + margin) // wide))
        places = content[row.length :].view(np.uint32)
        head = int(places[0])
        wanted = places[first * across : last * across + 1].astype(np.int64)
        ends = wanted[1:].reshape(-1, across)[:, start:end]  # of all intervals that are wanted
        begins, stops = wanted[start:-1:across], ends[:, -1]  # of a run of them in each row
        # np.concatenate would let go of Python's lock for each of them, and wait for it again
        runs = [jpeg[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
        part = bytearray().join([jpeg[:head], *runs])
        moved = (stops - begins).cumsum() + (head - stops)
        # a photograph has thousands of marks: set in a loop, they let the other threads wait
        marks = np.frombuffer(MARKS * ceil(ends.size / 8), np.uint8, ends.size)
        np.frombuffer(part, np.uint8)[ends + (moved[:, None] - 1)] = marks.reshape(ends.shape)
        part[-1] = END
        rows = range(first * high, min(row.height, last * high))
        columns = range(start * wide, min(row.width, end * wide))
        part[at : at + 4] = (len(rows) << 16 | len(columns)).to_bytes(4)
        return part, rows, columns


@cache
def _resize_into() -> Callable[..., object]:
    """Return the function that `interpolate` calls to resize with antialias; it takes `out`.

    `interpolate` allocates memory for each result, and the system clears every page of it first:
    with two threads that costs a quarter of the loader's speed. torch.ops.aten has the function
    too, but holds the GIL longer, which costs a fortieth.
    """
    found: Callable[..., object] = getattr(torch._C._nn, _UNDOCUMENTED, _resize_publicly)
    return found


def _resize_publicly(
    image: Tensor, size: list[int], _align: bool, *_scales: None, out: Tensor
) -> None:
    """Do the same with documented functions, for a torch that has renamed the other one."""
    out.copy_(interpolate(image, size, mode="bilinear", antialias=True))


def _colours_apart(frame: memoryview, factor: int) -> bool:
    """Return whether no pixel that is decoded takes its colour from its neighbours too.

    Where four pixels share a colour, it is decoded twice as large as they are if they are decoded
    smaller: the two have one size then.
    """
    kinds = bytes(frame[6 : 6 + 3 * frame[4] : 3])  # of each component, across and down
    return not kinds.strip(b"\x11" if factor == 1 else b"\x11\x22")


def _batch_of(image: NDArray[np.uint8]) -> Tensor:
    """Return an image, (rows, columns, 3) without gaps, as (1, 3, rows, columns) in that layout."""
    # made a batch by NumPy: else torch does not see that colours lie side by side, works in planes
    return torch.from_numpy(image.transpose(2, 0, 1)[None])


def _mirror(image: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Write an image with left and right swapped."""
    from cv2 import flip

    flip(image, 1, dst=out)


def _mix_four(image: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Resize an image until it fills `out`, each pixel a mixture of the four nearest to it."""
    from cv2 import resize

    resize(image, out.shape[1::-1], dst=out)


def _reach(wanted: range, size: int, scaled: int, factor: int) -> tuple[int, int]:
    """Return the first of the `size` old pixels that mix in the wanted new ones, and the last + 1.

    A new pixel reaches as far as the centres of its neighbours, and at least to a decoded one.
    """
    step = size / scaled
    far = max(step, factor)
    first, last = ((at + 0.5) * step for at in (wanted[0], wanted[-1]))
    return max(0, floor(first - far)), min(size, ceil(last + far))
