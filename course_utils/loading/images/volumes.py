"""Read 3-D volumes, or single planes, from each format that make_volumes writes.

    volumes = Volumes(data_path("volumes"), "npy")
    density = volumes[0]  # float32 (z, y, x), with its checksum verified
    plane = volumes.plane(0, 17)  # density[17]; a part has no checksum

Reading a volume takes one request from .npy, a few from HDF5, and one per 256 KiB from .npz with
np.load. Reading a plane takes one request from .npy, a few from HDF5, and the complete .npz file.
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

NPY_HEADER = 128  # bytes, length of the header of an .npy file
Values = NDArray[np.float32]


class Volumes(Dataset[torch.Tensor]):
    """Volumes of any shape, float32 (z, y, x), from files such as volumes-M/002.npz.

    Each read opens and closes its file, because an open is cheap compared with megabytes.
    """

    def __init__(self, folder: str | Path, form: str = "npy", *, fs: Any = None):
        """Read shapes and checksums, but no volume.

        Args:
            folder: Folder that make_volumes has written.
            form: "npz", "npy" or "h5".
            fs: fsspec file system to read from, such as `slow_storage(...)`. None: local disk.

        Raises:
            FileNotFoundError: If the folder contains no volumes.
            ValueError: If there is no such format.
        """
        if form not in _READERS:
            raise ValueError(f"There is no volume format {form!r}. Choose npz, npy or h5.")
        if not exists(f"{folder}/volumes.json", fs):
            raise FileNotFoundError(
                f"{folder} contains no volumes. Create some with "
                f"`python -m data_scripts.make_volumes --out {folder}`."
            )
        self.folder, self.form, self.fs = str(folder), form, fs
        with open_file(f"{folder}/volumes.json", fs) as file:
            facts = json.loads(file.read())
        self.shapes: list[tuple[int, ...]] = [tuple(fact["shape"]) for fact in facts.values()]
        self._crcs: list[int] = [fact["crc32"] for fact in facts.values()]

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a complete volume.

        Raises:
            OSError: If the file is missing, truncated or changed.
        """
        return self._read(range(len(self))[index], None)

    def plane(self, index: int, z: int) -> torch.Tensor:
        """Return plane `z` of a volume, float32 (y, x), with as few reads as possible.

        A truncated file raises an error. A changed value is noticed only in .npz, which is read
        completely, because the checksum covers the complete volume.

        Raises:
            IndexError: If there is no such plane.
            OSError: If the file is missing or damaged.
        """
        index = range(len(self))[index]
        return self._read(index, range(self.shapes[index][0])[z])

    def path(self, index: int) -> str:
        """Return the path of a volume's file."""
        return f"{self.folder}/{index:03d}.{self.form}"

    def _read(self, index: int, z: int | None) -> torch.Tensor:
        """Read a plane, or the complete volume if `z` is None."""
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
        except Exception as error:  # libraries raise different errors for corrupted bytes
            raise OSError(
                f"Cannot read volume {index}: {self.path(index)} is missing or corrupted. To find "
                "out how to fix it, run `python -m data_scripts.make_volumes --check --out "
                f"{self.folder}`."
            ) from error
        return torch.from_numpy(values)


def _read_npz(file: Any, shape: tuple[int, ...], z: int | None) -> Values:
    """Read with zip and numpy, as usual: the complete file, 256 KiB at a time."""
    with np.load(file) as arrays:
        values: Values = arrays["volume"]
    return values if z is None else values[z].copy()


def _read_npy(file: Any, shape: tuple[int, ...], z: int | None) -> Values:
    """Read with one request; np.load would request 256 KiB at a time from a server."""
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
