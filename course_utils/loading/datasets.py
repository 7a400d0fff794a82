"""Read events for training, from each of the formats that `data_scripts` writes.

    events = MemmapEvents(data_path("events"))
    loader = DataLoader(events, batch_size=64, shuffle=True, collate_fn=pad_collate)

They differ in one thing only: what must be read to get at one event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from course_utils.loading.events import Events, Pulses
from course_utils.loading.labels import open_file
from course_utils.measure.trace import stage

NPY_HEADER, ROW = 128, 16  # bytes: the start of pulses.npy, one pulse of four float32


class NpzEvents(Events):
    """One .npz archive per event: simple, and a request and a decoding for each."""

    file_name = "npz"

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        return [self._read_one(index) for index in indices]

    def _read_one(self, index: int) -> Pulses:
        path = f"{self.path}/{index // 1000:03d}/{index:06d}.npz"
        with self._blaming(index, path):
            with stage("read"), open_file(path, self.fs) as file:
                content = file.read()  # one request; np.load(path) would make several small ones
            with stage("decode"), np.load(BytesIO(content)) as arrays:
                pulses: Pulses = arrays["pulses"]
        return pulses


class RowEvents(Events):
    """All pulses in one table: event i has its rows offsets[i] to offsets[i + 1]."""

    offsets: NDArray[np.int64]
    max_gap = 4096  # rows between two events: to read them along costs less than one more request

    def _rows(self, first: int, last: int) -> Pulses:
        raise NotImplementedError

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        found = {}
        with stage("read"):
            for run in neighbours(indices, self.offsets, self.max_gap):
                first, last = self.offsets[run[0]], self.offsets[run[-1] + 1]
                with self._blaming(run[0], self.path):
                    rows = self._rows(first, last)
                for index in run:
                    start, stop = self.offsets[index : index + 2] - first
                    found[index] = rows[start:stop]
            return [found[index].copy() for index in indices]


def neighbours(
    indices: Sequence[int], offsets: NDArray[np.int64], max_gap: int
) -> Iterator[list[int]]:
    """Yield the events that one request can fetch: sorted, with gaps of at most `max_gap` rows."""
    run: list[int] = []
    for index in sorted(set(indices)):
        if run and offsets[index] - offsets[run[-1] + 1] > max_gap:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


class MemmapEvents(RowEvents):
    """One .npy file, mapped into memory; on an fsspec file system it is read in pieces."""

    file_name = "npy/pulses.npy"

    def __init__(self, folder: str | Path, *, fs: Any = None):
        """Read the labels and the offsets."""
        super().__init__(folder, fs=fs)
        with open_file(f"{folder}/npy/offsets.npy", fs) as file:
            self.offsets = np.load(BytesIO(file.read()))

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        return np.load(path, mmap_mode="r") if fs is None else open_file(path, fs)

    def _rows(self, first: int, last: int) -> Pulses:
        if self.fs is None:
            rows: Pulses = self.file[first:last]
            return rows
        self.file.seek(NPY_HEADER + first * ROW)
        content = self.file.read((last - first) * ROW)
        return np.frombuffer(content, np.float32).reshape(last - first, 4)


class Hdf5Events(RowEvents):
    """One HDF5 file with the datasets `pulses` and `offsets`."""

    file_name = "events.h5"

    def __init__(self, folder: str | Path, *, fs: Any = None):
        """Read the labels and the offsets."""
        super().__init__(folder, fs=fs)
        with self._blaming(0, self.path), self._open(self.path, fs) as file:
            self.offsets = file["offsets"][:]

    @staticmethod
    def _open(path: str, fs: Any) -> h5py.File:
        return h5py.File(path if fs is None else fs.open(path), "r")

    def _rows(self, first: int, last: int) -> Pulses:
        rows: Pulses = self.file["pulses"][first:last]
        return rows


class ParquetEvents(Events):
    """One Parquet file with a row per pulse; the least it can read is one row group of events."""

    file_name = "pulses.parquet"

    def __init__(self, folder: str | Path, *, fs: Any = None):
        """Read the labels, and how many events a row group holds."""
        super().__init__(folder, fs=fs)
        with self._blaming(0, self.path), self._open(self.path, fs) as file:
            self.events_per_group = int(file.schema_arrow.metadata[b"events_per_row_group"])

    @staticmethod
    def _open(path: str, fs: Any) -> pq.ParquetFile:
        return pq.ParquetFile(path, filesystem=fs, pre_buffer=True)

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        places = [divmod(index, self.events_per_group) for index in indices]
        groups = {group: self._group(group) for group in sorted({group for group, _ in places})}
        return [groups[group][row].copy() for group, row in places]

    def _group(self, group: int) -> list[Pulses]:
        with self._blaming(group * self.events_per_group, self.path):
            with stage("read"):
                table = self.file.read_row_group(group, use_threads=False)
            with stage("decode"):
                event_id, *columns = (column.to_numpy() for column in table.itercolumns())
                pulses = np.column_stack(columns).astype(np.float32, copy=False)
                return np.split(pulses, np.flatnonzero(np.diff(event_id)) + 1)
