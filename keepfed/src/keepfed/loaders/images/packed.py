"""Store JPEGs in one file with an index, so that no file is opened per image.

    pack_images("train.images", data_path("images"))
    images = PackedImages("train.images")
    jpeg = images[7]  # its bytes, checked with a checksum

The file begins with a table that np.load can read, followed by the JPEGs. The table contains the
position and the size in pixels of each image, so the size is known before the image is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.lib.format import open_memmap, write_array
from numpy.typing import NDArray

from keepfed.checks import open_regular, position, stamp
from keepfed.errors import unreadable
from keepfed.files import progress_bar, replacing, require_free_space, writing
from keepfed.loaders.images.jpegs import Jpegs
from keepfed.reading import reading

MOST_PIXELS = 178_956_970  # the limit of Pillow; larger images are often damaged headers
AGAIN = "Copy it again, or create it with `pack_images`"
_CONVERT = "Remove it, or convert it: Image.open(path).convert('RGB').save('new.jpg')"
_AT_ONCE = 256  # images processed at a time


INDEX = np.dtype(  # a row of the table, which describes one image
    [
        ("where", "<i8"),  # bytes from the start of the file
        ("length", "<i4"),  # bytes
        ("height", "<i4"),  # pixels
        ("width", "<i4"),
        ("label", "<i4"),
        ("checksum", "<u4"),
    ]
)


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
            if self.stamp[0] != int(self.table[-1]["where"]) + int(self.table[-1]["length"]):
                raise ValueError("it is not as long as its table says")
            # a row is checked when it is used, but its pixels are reserved before
            self.most_pixels = int(np.prod(self.table[["height", "width"]].tolist(), 1).max())
            if self.most_pixels > MOST_PIXELS:
                raise ValueError("its table is damaged")
            # a plain array, because each slice of a memmap is another memmap, which is slow
            self._bytes = np.memmap(self.path, np.uint8, "r").view(np.ndarray)
        self._checked = np.zeros(len(self.table), bool)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """Return the JPEG bytes of an image, uint8 (length,).

        Raises:
            IndexError: If the image does not exist.
            ReadError: If the image is corrupted.
        """
        row = self.table[position(index, len(self), self.path)]
        jpeg = self._bytes[row["where"] : row["where"] + row["length"]]
        if not self._checked[index]:
            if _checksum(row, jpeg.data) != row["checksum"]:
                raise unreadable(self.path, "its checksum is wrong", AGAIN, index)
            self._checked[index] = True
        return jpeg


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
        require_free_space(path.parent, size, otherwise="or pack fewer images")
    table = np.zeros(len(files), INDEX)
    table["label"] = photos.labels
    with replacing(path) as out:
        write_array(out, table)  # a placeholder, overwritten at the end
        for row, (jpeg, height, width) in zip(table, _read(files), strict=True):
            row["where"], row["length"] = out.tell(), len(jpeg)
            row["height"], row["width"] = height, width
            row["checksum"] = _checksum(row, jpeg)
            out.write(jpeg)
        out.seek(0)
        write_array(out, table)
    return path.stat().st_size


def _checksum(row: np.void, jpeg: bytes | memoryview) -> int:
    """Return the CRC-32 of an image and of the other fields of its row."""
    return crc32(jpeg, crc32(row.tobytes()[:-4]))


def _read(files: list[Path]) -> Iterator[tuple[bytes, int, int]]:
    """Yield each JPEG with its height and width."""
    with ThreadPoolExecutor() as pool, progress_bar("packing", len(files), " images") as count:
        for first in range(0, len(files), _AT_ONCE):
            yield from pool.map(_read_one, files[first : first + _AT_ONCE])
            count(len(files[first : first + _AT_ONCE]))


def _read_one(path: Path) -> tuple[bytes, int, int]:
    from simplejpeg import decode_jpeg, decode_jpeg_header

    with reading(path, step=_CONVERT):
        with open_regular(path) as file:
            jpeg = file.read()
        if not jpeg.startswith(b"\xff\xd8"):
            raise ValueError(f"it is not a JPEG, and its name ends in {path.suffix}")
        height, width, colors, _ = decode_jpeg_header(jpeg)
        if colors not in ("Gray", "RGB", "YCbCr"):
            raise ValueError("its colors are CMYK")
        if height * width > MOST_PIXELS:
            raise ValueError(f"it has more than {MOST_PIXELS:,} pixels")
        decode_jpeg(jpeg)
    return jpeg, height, width
