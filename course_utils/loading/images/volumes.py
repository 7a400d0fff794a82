"""Read 3-D volumes, or one plane of them, from each of the formats that make_volumes writes.

    volumes = Volumes(data_path("volumes"), "npy")
    density = volumes[0]  # float32 (z, y, x), compared with its checksum
    plane = volumes.plane(0, 17)  # density[17]; nothing can vouch for a part

A whole volume takes one request from .npy and a few from HDF5; from .npz, np.load takes one for
every 256 KiB. A plane takes one, a few, and everything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from keepfed.files import exists, open_file
from keepfed.measure.spans import stage

NPY_HEADER = 128  # bytes: the start of an .npy file
Values = NDArray[np.float32]


class Volumes(Dataset[torch.Tensor]):
    """Volumes of any shapes, float32 (z, y, x), from files such as volumes-M/002.npz.

    A file is opened for each read and closed after it: an open is little beside megabytes.
    """

    def __init__(self, folder: str | Path, form: str = "npy", *, fs: Any = None):
        """Read shapes and checksums, and no volume.

        Args:
            folder: volumes as make_volumes writes them.
            form: "npz", "npy" or "h5".
            fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.

        Raises:
            FileNotFoundError: the folder holds no volumes.
            ValueError: there is no such format.
        """
        if form not in _READERS:
            raise ValueError(f"There are no volumes as {form!r}; choose npz, npy or h5.")
        if not exists(f"{folder}/volumes.json", fs):
            raise FileNotFoundError(
                f"{folder} holds no volumes; make some with `python -m course_data.make_volumes "
                f"--out {folder}`."
            )
        self.folder, self.form, self.fs = str(folder), form, fs
        with open_file(f"{folder}/volumes.json", fs) as file:
            facts = json.loads(file.read())
        self.shapes: list[tuple[int, ...]] = [tuple(fact["shape"]) for fact in facts.values()]
        self._crcs: list[int] = [fact["crc32"] for fact in facts.values()]

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a whole volume, as it was written.

        Raises:
            OSError: the file is missing, truncated, or any of its values has changed.
        """
        return self._read(range(len(self))[index], None)

    def plane(self, index: int, z: int) -> torch.Tensor:
        """Return plane `z` of a volume, float32 (y, x), reading as little as the format allows.

        A file that ends too early is noticed. A changed value is not, except in .npz, which is read
        whole: the checksum is that of the volume.

        Raises:
            IndexError: there is no such plane.
            OSError: the file is missing or damaged.
        """
        index = range(len(self))[index]
        return self._read(index, range(self.shapes[index][0])[z])

    def path(self, index: int) -> str:
        """Return the file of a volume."""
        return f"{self.folder}/{index:03d}.{self.form}"

    def _read(self, index: int, z: int | None) -> torch.Tensor:
        """Read a plane, or all where `z` is None."""
        shape = self.shapes[index]
        wanted = shape if z is None else shape[1:]
        try:
            with stage("read"), open_file(self.path(index), self.fs) as file:
                values = _READERS[self.form](file, shape, z)
            if values.shape != wanted or values.dtype != np.float32:
                raise ValueError(f"{values.dtype} {values.shape} instead of float32 {wanted}")
            if z is None:
                with stage("decode"):
                    if crc32(values.data) != self._crcs[index]:
                        raise ValueError("its values have changed")
        except Exception as error:  # corrupted bytes make each library fail in ways of its own
            raise OSError(
                f"Volume {index} cannot be read, {self.path(index)} is missing or corrupted; to "
                "see what to do about it, run `python -m course_data.make_volumes --check --out "
                f"{self.folder}`."
            ) from error
        return torch.from_numpy(values)


def _read_npz(file: Any, shape: tuple[int, ...], z: int | None) -> Values:
    """Read through zip and numpy, as everybody does: all of it, in pieces of 256 KiB."""
    with np.load(file) as arrays:
        values: Values = arrays["volume"]
    return values if z is None else values[z].copy()


def _read_npy(file: Any, shape: tuple[int, ...], z: int | None) -> Values:
    """Read in one piece; np.load would do the same on a disk, but ask a server 256 KiB a time."""
    values = np.empty(shape if z is None else shape[1:], np.float32)
    file.seek(NPY_HEADER + (0 if z is None else z * values.nbytes))
    if file.readinto(values.data) != values.nbytes:
        raise EOFError("the file ends too early")
    return values


def _read_h5(file: Any, shape: tuple[int, ...], z: int | None) -> Values:
    import h5py

    with h5py.File(file) as opened:
        values: Values = opened["volume"][:] if z is None else opened["volume"][z]
    return values


_READERS = {"npz": _read_npz, "npy": _read_npy, "h5": _read_h5}
