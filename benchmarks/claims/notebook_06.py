"""Count or measure the claims of notebook 06."""

import io
import tarfile
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import EventArrays
from course_utils.teaching.notebook import data_path


class Reads(io.BytesIO):
    """A Python file that records its largest read."""

    largest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read, and record the size."""
        content = super().read(size)
        self.largest = max(self.largest, len(content))
        return content


def largest_piece_of_a_python_file() -> int:
    """Return the largest read that numpy requests from a Python file, in .npy as in .npz."""
    volume = np.zeros(2**20, np.float32)
    plain, zipped = Reads(), Reads()
    np.save(plain, volume)
    np.savez(zipped, volume=volume)
    for file in plain, zipped:
        file.largest = 0
        file.seek(0)
    np.load(plain)
    np.load(zipped)["volume"]
    assert plain.largest == zipped.largest
    return plain.largest


def warnings_and_maps_of_a_mapped_npz() -> int:
    """Count signs that np.load respects mmap_mode: warnings, and arrays that are maps."""
    with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        np.savez(f"{folder}/a.npz", a=np.zeros(9))
        with np.load(f"{folder}/a.npz", mmap_mode="r") as arrays:
            return len(caught) + isinstance(arrays["a"], np.memmap)


def opens_of_a_tar() -> int:
    """Count the opens for reading all images in one tar file."""
    pictures = sorted(data_path("images", "S").glob("*/*.jpg"))
    with TemporaryDirectory() as folder:
        with tarfile.open(Path(folder, "pictures.tar"), "w") as tar:
            for picture in pictures:
                tar.add(picture, f"{picture.parent.name}-{picture.name}")
        storage = counting_storage(folder)
        with storage.open("pictures.tar") as file, tarfile.open(fileobj=file, mode="r|") as tar:
            assert sum(1 for _ in tar) == len(pictures)
        return storage.counters().opens


def columns_in_a_chunk_of_h5py() -> int:
    """Return how many of the four columns are in a chunk if h5py chooses its shape."""
    pulses = EventArrays.load(data_path("events", "S")).pulses
    with TemporaryDirectory() as folder, h5py.File(f"{folder}/chunks.h5", "w") as file:
        chunks: tuple[int, ...] = file.create_dataset("pulses", data=pulses, chunks=True).chunks
        return chunks[1]
