"""Store JPEGs in one file with an index, so that no file is opened per image.

    pack_images("train.images", data_path("images"))
    images = PackedImages("train.images")
    jpeg = images[7]  # its bytes, checked with a checksum

The file begins with a table that np.load can read, followed by the JPEGs. The table contains the
position and the size in pixels of each image, so the size is known before the image is read. All
JPEGs except progressive ones get restart markers, so that a part of an image can be decoded without
the rest. The positions of the markers are stored after each JPEG.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.lib.format import open_memmap, write_array
from numpy.typing import NDArray

from keepfed.checks import open_regular, position, stamp
from keepfed.errors import unreadable
from keepfed.files import progress_bar, require_free_space, writing
from keepfed.loaders.images.jpegs import Jpegs
from keepfed.loaders.images.restarts import RestartedJpeg, with_restarts
from keepfed.reading import reading

MOST_PIXELS = 178_956_970  # the limit of Pillow; larger images are often damaged headers
AGAIN = "Copy it again, or create it with `pack_images`"
_CONVERT = "Remove it, or convert it: Image.open(path).convert('RGB').save('new.jpg')"
_AT_ONCE = 256  # images processed at a time
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # frame markers, ITU-T T.81, table B.1


class Row(NamedTuple):
    """One row of the table, which describes one image."""

    where: int  # bytes from the start of the file
    length: int  # bytes
    frame_at: int  # bytes from the start of the JPEG to the height in its frame header
    height: int  # pixels
    width: int
    label: int
    intervals: int  # number of restart intervals
    across: int  # restart intervals in a row of the image
    part_width: int  # pixels of an interval
    part_height: int
    checksum: int

    @property
    def room(self) -> int:
        """The bytes of an image and of the positions of its intervals."""
        return self.length + (4 * (self.intervals + 1) if self.intervals else 0)


_TYPES = "i8", "i4", "i4", "i4", "i4", "i4", "i4", "i4", "i2", "i2", "u4"
INDEX = np.dtype([(name, f"<{kind}") for name, kind in zip(Row._fields, _TYPES, strict=True)])


class PackedImages:
    """The JPEGs and the table of a file written by `pack_images`.

    The first read of an image checks a checksum of the image and of its row in the table. Several
    threads may read at the same time.
    """

    def __init__(self, path: str | Path):
        """Read only the table, or raise ReadError if it is no file of `pack_images`."""
        self.path = Path(path)
        with reading(path, step=AGAIN):
            self.stamp = stamp(path)
            # mapped first, so that a damaged header cannot ask for more memory than there is
            self.table: NDArray[np.void] = np.array(open_memmap(self.path, mode="r"))
            if self.table.dtype != INDEX or not len(self.table):
                raise ValueError("it is no file of packed images")
            if self.stamp[0] != self.row(-1).where + self.row(-1).room:
                raise ValueError("it is not as long as its table says")
            # a plain array, because each slice of a memmap is another memmap, which is slow
            self._bytes = np.memmap(self.path, np.uint8, "r").view(np.ndarray)
        self._checked = np.zeros(len(self.table), bool)

    def __len__(self) -> int:
        return len(self.table)

    def row(self, index: int) -> Row:
        """Return the table row of an image."""
        return Row(*self.table[position(index, len(self), self.path)].item())

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """Return the JPEG bytes of an image, uint8 (length,). Errors are those of `read`."""
        row, content = self.read(index)
        return content[: row.length]

    def read(self, index: int) -> tuple[Row, NDArray[np.uint8]]:
        """Return the table row of an image, and the bytes of its JPEG and its interval positions.

        The positions are uint32 offsets in bytes: the begin of each interval, and the end of the
        last one. An image without restart markers has no positions.

        Raises:
            IndexError: If the image does not exist.
            ReadError: If the image is corrupted.
        """
        row = self.row(index)
        content = self._bytes[row.where : row.where + row.room]
        if not self._checked[index]:
            if _checksum(self.table[index], content.data) != row.checksum:
                raise unreadable(self.path, "its checksum is wrong", AGAIN, index)
            self._checked[index] = True
        return row, content


def pack_images(path: str | Path, folder: str | Path) -> int:
    """Write the images of class folders to one file, and return its size in bytes.

    Order and labels are those of `Jpegs(folder)`, and no pixel changes. Each image is decoded once,
    so that a damaged image is found now and not in the third hour of training. The file is written
    under a temporary name and renamed when it is complete. Only one process may write it at a time.

    Raises:
        ReadError: If the folder has no images, or one is damaged, or neither gray nor RGB.
        KeepfedError: If the disk has too little space.
    """
    path, photos = Path(path), Jpegs(folder)
    files = [Path(folder, photos.name(index)) for index in range(len(photos))]
    with writing(path):
        size = sum(file.stat().st_size for file in files if file.exists())
        size += size // 10  # restart markers and their positions take space, too
        require_free_space(path.parent, size, otherwise="or pack fewer images")
    unfinished = path.with_name(f".{path.name}.unfinished")
    table = np.zeros(len(files), INDEX)
    table["label"] = photos.labels
    try:
        with writing(path), unfinished.open("wb") as out:
            write_array(out, table)  # a placeholder, overwritten at the end
            for row, (jpeg, frame, cut) in zip(table, _read(files), strict=True):
                row["where"], row["length"] = out.tell(), len(cut.jpeg if cut else jpeg)
                row["frame_at"], row["height"], row["width"] = frame
                if cut:
                    row["intervals"], row["across"] = len(cut.starts) - 1, cut.across
                    row["part_width"], row["part_height"] = cut.width, cut.height
                content = cut.jpeg + cut.starts.tobytes() if cut else jpeg
                row["checksum"] = _checksum(row, content)
                out.write(content)
            out.seek(0)
            write_array(out, table)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path.stat().st_size


def _checksum(row: np.void, content: bytes | memoryview) -> int:
    """Return the CRC-32 of an image and of the other fields of its row."""
    return crc32(content, crc32(row.tobytes()[:-4]))


def _read(files: list[Path]) -> Iterator[tuple[bytes, tuple[int, int, int], RestartedJpeg | None]]:
    """Yield each JPEG with the position of its height, its height and width, and its intervals."""
    with ThreadPoolExecutor() as pool, progress_bar("packing", len(files), " images") as count:
        for first in range(0, len(files), _AT_ONCE):
            jpegs = list(pool.map(_read_one, files[first : first + _AT_ONCE]))
            parts = with_restarts([jpeg for jpeg, _ in jpegs])
            yield from ((*jpeg, part) for jpeg, part in zip(jpegs, parts, strict=True))
            count(len(jpegs))


def _read_one(path: Path) -> tuple[bytes, tuple[int, int, int]]:
    from simplejpeg import decode_jpeg, decode_jpeg_header

    with reading(path, step=_CONVERT):
        with open_regular(path) as file:
            jpeg = file.read()
        if not jpeg.startswith(b"\xff\xd8"):
            raise ValueError(f"it is not a JPEG, and its name ends in {path.suffix}")
        rows, columns, colors, _ = decode_jpeg_header(jpeg)
        if colors not in ("Gray", "RGB", "YCbCr"):
            raise ValueError("its colors are CMYK")
        if rows * columns > MOST_PIXELS:
            raise ValueError(f"it has more than {MOST_PIXELS:,} pixels")
        frame = _frame(jpeg)
        if frame[1:] != decode_jpeg(jpeg).shape[:2]:
            raise ValueError("its frame header is damaged")
    return jpeg, frame


def _frame(jpeg: bytes) -> tuple[int, int, int]:
    """Return the position of the height in the frame header, the height, and the width."""
    at = 2  # after the marker at the start of every JPEG
    while jpeg[at + 1] not in _FRAMES:
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4]) if jpeg[at + 1] != 0xFF else 1
    height, width = (int.from_bytes(jpeg[at + i : at + i + 2]) for i in (5, 7))
    return at + 5, height, width
