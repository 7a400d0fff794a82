"""One HDF5 file, with chunks that suit the reader, with bad chunks, or without chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from course_utils.loading.events.contract import Pulses, RowEvents
from course_utils.loading.events.npy import EventArrays

FIT = (512, 4)  # 8 KiB, a few complete events
MISFIT = (65536, 1)  # 256 KiB, one column of hundreds of events; an event needs four chunks

_CHUNK_CACHE = 2**20  # bytes; HDF5's default before version 2, which uses 8 MiB
_ROWS_AT_ONCE = 65536  # complete chunks, because a partial write compresses a chunk again


class Hdf5Events(RowEvents):
    """One HDF5 file with the datasets `pulses` and `offsets`."""

    entry = "events.h5"

    def _find(self) -> None:
        with self._open(self.path, self.fs) as file:
            self.offsets = self._in_order(file["offsets"][:])

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        import h5py

        # Some parallel file systems refuse the lock. Checksums show what a writer has changed.
        options = {"rdcc_nbytes": _CHUNK_CACHE, "locking": False}
        return h5py.File(path if fs is None else fs.open(path), "r", **options)

    def _rows(self, first: int, last: int) -> Pulses:
        return np.asarray(self.file["pulses"][first:last])


def write_hdf5(
    events: EventArrays, path: Path, *, chunks: tuple[int, int] | None = None, gzip: bool = False
) -> None:
    """Write the datasets `pulses`, `offsets` and `events`.

    A chunk of `pulses` has at most `chunks` rows and columns. None stores the dataset contiguously.
    """
    import h5py

    codec = {"compression": "gzip", "shuffle": True} if gzip else {}
    with (
        h5py.File(path, "w") as file,
        tqdm(total=len(events.pulses), desc="hdf5", unit="pulse", disable=None) as bar,
    ):
        file["events"] = events.table
        file["offsets"] = events.offsets
        shape = events.pulses.shape
        if chunks:
            chunks = min(chunks[0], shape[0]), chunks[1]
        pulses = file.create_dataset("pulses", shape, "<f4", chunks=chunks, **codec)
        for first in range(0, len(events.pulses), _ROWS_AT_ONCE):
            rows = events.pulses[first : first + _ROWS_AT_ONCE]
            pulses[first : first + len(rows)] = rows
            bar.update(len(rows))
