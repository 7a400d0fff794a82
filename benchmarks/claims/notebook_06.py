"""Count or measure the claims of notebook 06."""

import io
import tarfile
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import EventArrays, read_labels
from course_utils.stories.formats_compared import BANDWIDTHS, compare_codecs
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
    with TemporaryDirectory() as folder:
        _write_tar(Path(folder, "pictures.tar"))
        storage = counting_storage(folder)
        with storage.open("pictures.tar") as file, tarfile.open(fileobj=file, mode="r|") as tar:
            assert sum(1 for _ in tar) == len(_pictures())
        return storage.counters().opens


def decoding_from_a_tar_over_files() -> float:
    """Measure the decoding time of JPEGs from a tar file, relative to JPEGs from files."""
    with TemporaryDirectory() as folder:
        path = _write_tar(Path(folder, "pictures.tar"))
        with tarfile.open(path) as tar:
            members = [file.read() for member in tar if (file := tar.extractfile(member))]
    files = [path.read_bytes() for path in _pictures()]
    seconds = {name: list[float]() for name in ("tar", "files")}
    for name, jpegs in [("tar", members), ("files", files)] * 4:
        start = time.perf_counter()
        for jpeg in jpegs:
            np.asarray(Image.open(io.BytesIO(jpeg)))
        seconds[name].append(time.perf_counter() - start)
    return min(seconds["tar"]) / min(seconds["files"])


def share_read_for_one_id() -> float:
    """Return the share of a Parquet file that is read when a filter selects one event ID."""
    folder = data_path("events", "S")
    storage = counting_storage(folder)
    some_id = int(read_labels(folder).event_id[777])
    pq.read_table("pulses.parquet", filesystem=storage, filters=[("event_id", "=", some_id)])
    return storage.counters().bytes_read / (folder / "pulses.parquet").stat().st_size


def columns_in_a_chunk_of_h5py() -> int:
    """Return how many of the four columns are in a chunk if h5py chooses its shape."""
    return _read_chunked(chunks=True)[0][1]


def large_chunks_over_small() -> float:
    """Return the bytes read for random events with large chunks, relative to small ones."""
    return _read_chunked(chunks=(65536, 4))[1] / _read_chunked(chunks=(256, 4))[1]


def _read_chunked(chunks: Any) -> tuple[tuple[int, ...], float]:
    """Return the shape of a chunk, and the bytes read per byte of 200 random events."""
    events = EventArrays.load(data_path("events", "S"))
    with TemporaryDirectory() as folder:
        with h5py.File(f"{folder}/chunks.h5", "w") as file:
            options = {"data": events.pulses, "chunks": chunks, "compression": "gzip"}
            shape: tuple[int, ...] = file.create_dataset("pulses", **options).chunks
        storage, wanted = counting_storage(folder), 0
        with storage.open("chunks.h5") as raw, h5py.File(raw, rdcc_nbytes=10**6) as file:
            table = file["pulses"]
            for event in np.random.default_rng(0).permutation(len(events))[:200]:
                wanted += table[slice(*events.offsets[event : event + 2])].nbytes
        return shape, storage.counters().bytes_read / wanted


def zstd_over_raw_on_nfs() -> float:
    """Return the time for zstd on a network drive, relative to raw pulses."""
    return _zstd_over_raw("emulated NFS")


def zstd_over_raw_on_ssd() -> float:
    """Return the time for zstd on a fast disk, relative to raw pulses."""
    return _zstd_over_raw("emulated laptop SSD")


def _zstd_over_raw(storage: str) -> float:
    codecs = compare_codecs(data_path("events", "S"))
    return float(codecs["zstd"].cost_at(BANDWIDTHS[storage]))


def _pictures() -> list[Path]:
    return sorted(data_path("images", "S").glob("*/*.jpg"))


def _write_tar(path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        for picture in _pictures():
            tar.add(picture, f"{picture.parent.name}-{picture.name}")
    return path
