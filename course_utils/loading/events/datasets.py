"""Read events for training, from each of the formats that `data_scripts` writes.

    events = MemmapEvents(data_path("events"))
    loader = DataLoader(events, batch_size=64, shuffle=True, collate_fn=pad_collate)

They differ in one thing only: what must be read to get at one event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import h5py
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from course_utils.loading.events.contract import Events, Pulses
from course_utils.loading.events.labels import open_file
from course_utils.measure.spans import stage

NPY_HEADER, ROW = 128, 16  # bytes: the start of pulses.npy, one pulse of four float32
CHUNK_CACHE = 2**20  # bytes: HDF5's own default until version 2 made it 8 MiB


class NpzEvents(Events):
    """One .npz archive per event: simple, and a request and a decoding for each."""

    variants: ClassVar = {"stored": "npz", "deflate": "npz-deflate"}

    def path_of(self, index: int) -> str:
        """Return the archive of one event."""
        return f"{self.path}/{index // 1000:03d}/{index:06d}.npz"

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        return [self._read_one(index) for index in indices]

    def _read_one(self, index: int) -> Pulses:
        with self._blaming(index):
            with stage("read"), open_file(self.path_of(index), self.fs) as file:
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

    def _in_order(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Refuse offsets that nobody wrote; those below are never compared with a checksum."""
        if len(offsets) != len(self) + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise ValueError("the offsets do not rise from 0, one for each event and one more")
        return offsets

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        found = {}
        with stage("read"):
            for run in neighbours(indices, self.offsets, self.max_gap):
                first, last = self.offsets[run[0]], self.offsets[run[-1] + 1]
                with self._blaming(run[0]):
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

    variants: ClassVar = {"npy": "npy/pulses.npy"}

    def __init__(self, folder: str | Path, *, fs: Any = None):
        """Read the labels and the offsets."""
        super().__init__(folder, fs=fs)
        path = f"{folder}/npy/offsets.npy"
        with self._blaming(0, path), open_file(path, fs) as file:
            self.offsets = self._in_order(np.load(BytesIO(file.read())))

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
    """One HDF5 file with the datasets `pulses` and `offsets`; the variants differ in its chunks."""

    variants: ClassVar = {
        "contiguous": "events.h5",
        "chunked": "events-chunked.h5",
        "gzip": "events-gzip.h5",
        "misfit": "events-misfit.h5",
    }

    def __init__(self, folder: str | Path, *, fs: Any = None, variant: str | None = None):
        """Read the labels and the offsets."""
        super().__init__(folder, fs=fs, variant=variant)
        with self._blaming(0), self._open(self.path, fs) as file:
            self.offsets = self._in_order(file["offsets"][:])

    @staticmethod
    def _open(path: str, fs: Any) -> h5py.File:
        return h5py.File(path if fs is None else fs.open(path), "r", rdcc_nbytes=CHUNK_CACHE)

    def _rows(self, first: int, last: int) -> Pulses:
        rows: Pulses = self.file["pulses"][first:last]
        return rows


class GroupEvents(Events):
    """The least that can be read is a group of events."""

    def _place(self, index: int) -> tuple[int, int]:
        """Return the group of an event, and its number in there."""
        raise NotImplementedError

    def _group(self, group: int) -> list[Pulses]:
        raise NotImplementedError

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        groups: dict[int, list[Pulses]] = {}
        found = {}
        for index in sorted(set(indices)):
            with self._blaming(index):
                group, row = self._place(index)
                if group not in groups:
                    groups[group] = self._group(group)
                found[index] = groups[group][row]
        return [found[index].copy() for index in indices]


class _ParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A file that one thread reads at a time.

    It buffers one row group: a second thread would throw away what the first waits for, for ever.
    """

    def __init__(self, path: str, fs: Any):
        super().__init__(path, filesystem=fs, pre_buffer=True)
        self._lock = Lock()

    def read_row_group(self, group: int) -> Any:
        with self._lock:
            return super().read_row_group(group, use_threads=False)


class ParquetEvents(GroupEvents):
    """One Parquet file with a row per pulse; the least it can read is one row group."""

    variants: ClassVar = {"groups": "pulses.parquet", "zstd": "pulses-zstd.parquet"}

    def __init__(self, folder: str | Path, *, fs: Any = None, variant: str | None = None):
        """Read the labels, and how many events a row group holds."""
        super().__init__(folder, fs=fs, variant=variant)
        with self._blaming(0), self._open(self.path, fs) as file:
            self.events_per_group = int(file.schema_arrow.metadata[b"events_per_row_group"])

    @staticmethod
    def _open(path: str, fs: Any) -> pq.ParquetFile:
        return _ParquetFile(path, fs)

    def _place(self, index: int) -> tuple[int, int]:
        return divmod(index, self.events_per_group)

    def _group(self, group: int) -> list[Pulses]:
        with stage("read"):
            table = self.file.read_row_group(group)
        with stage("decode"):
            event_id, *columns = (column.to_numpy() for column in table.itercolumns())
            pulses = np.column_stack(columns).astype(np.float32, copy=False)
            return np.split(pulses, np.flatnonzero(np.diff(event_id)) + 1)
