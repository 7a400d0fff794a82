"""Keep JPEGs in one file with an index: nothing is opened for an image, nothing is decoded twice.

    pack_images("train.images", data_path("images"))
    images = PackedImages("train.images")
    jpeg = images[7]  # its bytes, compared with their checksum

The file begins with a table, which np.load reads as it reads any .npy; behind it come the JPEGs,
one after the other. The table says of each where it is and what its frame is: so the size of an
image is known before anything of it is read. Unless they are progressive, the JPEGs have been given
restart markers: so a part can be cut out of one. Behind each lies the list of these places.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from keepfed.files import require_free_space
from keepfed.loaders.images.jpegs import Jpegs
from keepfed.loaders.images.restarts import Restarting, with_restarts

_AT_ONCE = 256  # images that are gone through together before they are written
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of a frame: ITU-T T.81, table B.1


class Row(NamedTuple):
    """What the table says of an image."""

    where: int  # bytes from the start of the file
    length: int  # bytes
    frame_at: int  # bytes from the start of the JPEG to its height
    height: int  # pixels
    width: int
    label: int
    intervals: int  # of restart markers
    across: int  # of them, beside each other
    part_width: int  # of each, in pixels
    part_height: int
    checksum: int

    @property
    def room(self) -> int:
        """Return the bytes that an image takes, with the places of its intervals."""
        return self.length + (4 * (self.intervals + 1) if self.intervals else 0)


_TYPES = "i8", "i4", "i4", "i4", "i4", "i4", "i4", "i4", "i2", "i2", "u4"
INDEX = np.dtype([(name, f"<{kind}") for name, kind in zip(Row._fields, _TYPES, strict=True)])


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
            if self.path.stat().st_size != self.row(-1).where + self.row(-1).room:
                raise ValueError("it is not as long as its table says")
        except (ValueError, EOFError) as error:
            raise OSError(
                f"{path} is no whole file of packed images ({error}); pack them again, or copy it "
                "again from where it came."
            ) from error
        # a plain view: each slice of a memmap would be told of its file
        self._bytes = np.memmap(self.path, np.uint8, "r").view(np.ndarray)
        self._checked = np.zeros(len(self.table), bool)

    def __len__(self) -> int:
        return len(self.table)

    def row(self, index: int) -> Row:
        """Return what the table says of an image."""
        return Row(*self.table[index].item())

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """Return an image as a JPEG, uint8 (length,), as it lies in the file.

        Raises:
            IndexError: there is no such image.
            OSError: it is not as it was written.
        """
        row, content = self.read(index)
        return content[: row.length]

    def read(self, index: int) -> tuple[Row, NDArray[np.uint8]]:
        """Return the row of an image and what lies in the file: a JPEG, and behind it its places.

        They are uint32, in bytes: where each interval begins, and where the last one ends. An image
        that has no restart markers has none.

        Raises:
            IndexError: there is no such image.
            OSError: it is not as it was written.
        """
        row = self.row(index)
        content = self._bytes[row.where : row.where + row.room]
        if not self._checked[index]:
            if _checksum(self.table[index], content.data) != row.checksum:
                raise OSError(
                    f"Image {index} of {self.path} is corrupted; pack the images again, or copy "
                    "the file again from where it came."
                )
            self._checked[index] = True
        return row, content


def pack_images(path: str | Path, folder: str | Path) -> int:
    """Write the images of class folders into one file, and return its bytes.

    They come in the order of `Jpegs(folder)`, with its labels, and no pixel changes. Each is
    decoded once, to find one that is broken now and not in the third hour of training. The file is
    written beside its place and renamed when it is whole. One process may write at a time.

    Raises:
        FileNotFoundError: the folder holds no images.
        OSError: an image is broken, or none of grey or of red, green and blue.
        KeepfedError: the disk has no room.
    """
    path, photos = Path(path), Jpegs(folder)
    files = [Path(folder, name.decode()) for name in photos.names]
    size = sum(file.stat().st_size for file in files)
    require_free_space(path.parent, size + size // 10, otherwise="or pack less")  # restarts take room
    unfinished = path.with_name(f".{path.name}.unfinished")
    table = np.zeros(len(files), INDEX)
    table["label"] = photos.labels
    try:
        with unfinished.open("wb") as out:
            np.lib.format.write_array(out, table)  # its place: it is written again at the end
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
            np.lib.format.write_array(out, table)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path.stat().st_size


def _checksum(row: np.void, content: bytes | memoryview) -> int:
    """Return the CRC-32 of an image and of what its row says before it."""
    return crc32(content, crc32(row.tobytes()[:-4]))


def _read(files: list[Path]) -> Iterator[tuple[bytes, tuple[int, int, int], Restarting | None]]:
    """Yield each JPEG, where its frame says its height, that height and the width; its parts."""
    paths = iter(tqdm(files, "images", disable=None))
    with ThreadPoolExecutor() as pool:
        while some := list(islice(paths, _AT_ONCE)):
            read = list(pool.map(_read_one, some))
            parts = with_restarts([jpeg for jpeg, _ in read])
            yield from ((*one, cut) for one, cut in zip(read, parts, strict=True))


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
