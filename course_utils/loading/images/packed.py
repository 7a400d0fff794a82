"""Keep JPEGs in one file with an index: nothing is opened for an image, nothing is decoded twice.

    pack_images("train.images", data_path("images"))
    images = PackedImages("train.images")
    jpeg = images[7]  # its bytes, compared with their checksum

The file begins with a table, which np.load reads as it reads any .npy; behind it come the JPEGs as
they were, one after the other. The table says of each where it is and what its frame is, so that
the size of an image is known before anything of it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from course_utils.loading.images.jpegs import Jpegs
from course_utils.paths import need_room

# where: bytes from the start of the file; frame_at: bytes from the start of the JPEG to its height
_INDEX = [("where", "<i8"), ("length", "<i4"), ("frame_at", "<i4"), ("height", "<i4")]
INDEX = np.dtype([*_INDEX, ("width", "<i4"), ("label", "<i4"), ("checksum", "<u4")])
_AT_ONCE = 64  # images that are looked at by all threads before they are written
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of a frame: ITU-T T.81, table B.1


class PackedImages:
    """The JPEGs of a file of `pack_images`, and what its table says of them.

    An image is compared with its checksum when it is first read; that finds whatever has changed in
    it or in its row of the table. Threads may read at once.
    """

    def __init__(self, path: str | Path):
        """Read the table, and no image.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it is no file of pack_images, or not whole.
        """
        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"There is no {path}; make it with pack_images.")
        try:
            self.table: NDArray[np.void] = np.load(self.path)
            if self.table.dtype != INDEX or not len(self.table):
                raise ValueError("it has no table of images")
            if self.path.stat().st_size != self.table["where"][-1] + self.table["length"][-1]:
                raise ValueError("it is not as long as its table says")
        except (ValueError, EOFError) as error:
            raise OSError(
                f"{path} is no whole file of packed images ({error}); pack them again, or copy it "
                "again from where it came."
            ) from error
        self._bytes = np.memmap(self.path, np.uint8, "r")
        self._checked = np.zeros(len(self.table), bool)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """Return the bytes of an image, uint8 (length,), as they lie in the file.

        Raises:
            IndexError: there is no such image.
            OSError: it is not as it was written.
        """
        row = self.table[index]
        jpeg = self._bytes[row["where"] : row["where"] + row["length"]]
        if not self._checked[index]:
            if _checksum(row, jpeg.data) != row["checksum"]:
                raise OSError(
                    f"Image {index} of {self.path} is corrupted; pack the images again, or copy "
                    "the file again from where it came."
                )
            self._checked[index] = True
        return jpeg


def pack_images(path: str | Path, folder: str | Path) -> int:
    """Write the images of class folders into one file, and return its bytes.

    They come in the order of `Jpegs(folder)`, with its labels, and byte for byte as they are. Each
    is decoded once, to find one that is broken now and not in the third hour of training. The file
    is written beside its place and renamed when it is whole. One process may write at a time.

    Raises:
        FileNotFoundError: the folder holds no images.
        OSError: an image is broken, or none of grey or of red, green and blue.
        CourseError: the disk has no room.
    """
    path, photos = Path(path), Jpegs(folder)
    files = [Path(folder, name.decode()) for name in photos.names]
    need_room(path.parent, sum(file.stat().st_size for file in files), otherwise="or pack less")
    unfinished = path.with_name(f".{path.name}.unfinished")
    table = np.zeros(len(files), INDEX)
    table["label"] = photos.labels
    try:
        with unfinished.open("wb") as out:
            np.lib.format.write_array(out, table)  # its place: it is written again at the end
            for row, (jpeg, frame) in zip(table, _read(files), strict=True):
                row["where"], row["length"] = out.tell(), len(jpeg)
                row["frame_at"], row["height"], row["width"] = frame
                row["checksum"] = _checksum(row, jpeg)
                out.write(jpeg)
            out.seek(0)
            np.lib.format.write_array(out, table)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path.stat().st_size


def _checksum(row: np.void, jpeg: bytes | memoryview) -> int:
    """Return the CRC-32 of an image and of what its row says before it."""
    return crc32(jpeg, crc32(row.tobytes()[: -INDEX["checksum"].itemsize]))


def _read(files: list[Path]) -> Iterator[tuple[bytes, tuple[int, int, int]]]:
    """Yield each JPEG, and where its frame says its height, that height and the width."""
    paths = iter(tqdm(files, "images", disable=None))
    with ThreadPoolExecutor() as pool:
        while some := list(islice(paths, _AT_ONCE)):
            yield from pool.map(_read_one, some)


def _read_one(path: Path) -> tuple[bytes, tuple[int, int, int]]:
    from simplejpeg import decode_jpeg, decode_jpeg_header

    jpeg = path.read_bytes()
    try:
        if decode_jpeg_header(jpeg)[2] not in ("Gray", "RGB", "YCbCr"):
            raise ValueError("it has the colours of a printer")
        rows, columns, _ = decode_jpeg(jpeg).shape
        frame = _frame(jpeg)
        if frame[1:] != (rows, columns):
            raise ValueError("its frame is not where it should be")
    except ValueError as error:
        raise OSError(
            f"{path} is no JPEG that can be packed: {error}. Take it out of the folder, or convert "
            "it with Pillow: Image.open(path).convert('RGB').save(path)."
        ) from error
    return jpeg, frame


def _frame(jpeg: bytes) -> tuple[int, int, int]:
    """Return where the height of a JPEG stands, the height, and the width."""
    at = 2  # behind the marker that begins every JPEG
    while jpeg[at + 1] not in _FRAMES:
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4]) if jpeg[at + 1] != 0xFF else 1
    height, width = (int.from_bytes(jpeg[at + i : at + i + 2]) for i in (5, 7))
    return at + 5, height, width
