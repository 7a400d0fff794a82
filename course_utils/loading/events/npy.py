"""All pulses in one .npy file, with offsets: the course's own layout, which always exists.

npy/pulses.npy        float32 (pulses, 4): time in ns, charge in pe, sensor_id, auxiliary 0 or 1
npy/offsets.npy       int64 (events + 1,): event i has the pulses offsets[i] to offsets[i + 1]
events.parquet        one row per event: the columns of EVENT, and crc32 of its pulses
sensor_geometry.csv   sensor_id, x, y, z in meters

All other formats are converted from it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray
from tqdm import tqdm

from course_utils.loading.events.contract import Pulses, RowEvents
from course_utils.loading.events.labels import CHECK, EVENT, EVENT_COLUMNS, write_labels
from keepfed.files import open_file
from keepfed.reading import reading

Block = tuple[Pulses, NDArray[np.int64]]

EVENTS_AT_ONCE = 256
_HEADER, _ROW = 128, 16  # bytes: header of pulses.npy, one pulse (four float32)


class MemmapEvents(RowEvents):
    """One .npy file, memory-mapped, or read with requests from an fsspec file system."""

    entry = "npy"
    pulses_in, index_in = "/pulses.npy", "/offsets.npy"

    def _find(self) -> None:
        with open_file(self.index_path, self.fs) as file:
            self.offsets = self._in_order(np.load(BytesIO(file.read())))

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        return np.load(path, mmap_mode="r") if fs is None else open_file(path, fs)

    def _rows(self, first: int, last: int) -> Pulses:
        if self.fs is None:
            return np.asarray(self.file[first:last])
        self.file.seek(_HEADER + first * _ROW)
        content = self.file.read((last - first) * _ROW)
        return np.frombuffer(content, np.float32).reshape(last - first, 4)


@dataclass(frozen=True)
class EventArrays:
    """Ragged events to write in a format. The pulses may be memory-mapped."""

    table: NDArray[np.void]  # dtype EVENT
    offsets: NDArray[np.int64]
    pulses: Pulses

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open the events in `folder`. The pulses are memory-mapped, not read."""
        import pyarrow.parquet as pq

        with reading(folder, step=CHECK.format(folder)):
            columns = pq.read_table(folder / "events.parquet")
            table = np.empty(len(columns), EVENT)
            for name in EVENT_COLUMNS:
                table[name] = columns[name].to_numpy()
            pulses = np.load(folder / "npy/pulses.npy", mmap_mode="r")
            return cls(table, np.load(folder / "npy/offsets.npy"), pulses)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Pulses:
        return self.pulses[self.offsets[index] : self.offsets[index + 1]]

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Self:
        """Return the events at `indices`, in memory."""
        offsets = np.append(0, np.cumsum(np.diff(self.offsets)[indices]))
        return type(self)(
            self.table[indices], offsets, np.concatenate([self[index] for index in indices])
        )

    def save(self, folder: Path) -> None:
        """Write the events into an empty folder, in the layout that `load` reads."""
        write_events(folder, self.table, [(self.pulses, np.diff(self.offsets))])

    def blocks(self, title: str, size: int = EVENTS_AT_ONCE) -> Iterator[tuple[slice, slice]]:
        """Yield blocks of `size` events and their pulses as slices, with a progress bar.

        Blocks keep the memory use small.
        """
        with tqdm(total=len(self), desc=title, unit="event", disable=None) as bar:
            for block in self.slices(size):
                yield block, slice(*self.offsets[[block.start, block.stop]])
                bar.update(block.stop - block.start)

    def slices(self, size: int) -> list[slice]:
        """Return the events as slices of `size` events. The last one may be shorter."""
        firsts = range(0, len(self), size)
        return [slice(first, min(first + size, len(self))) for first in firsts]


@dataclass(frozen=True)
class Parts:
    """Writer for formats that are folders of parts, here one part at a time.

    To write in parallel, call `write` for each part in any process, and then `finish`.
    """

    title: str
    size: int  # events per part, as in `EventArrays.slices`
    name: Callable[[int], str]  # part number -> name of its file or folder
    write: Callable[[EventArrays, slice, Path], Any]  # writes one part; its result goes to `finish`
    finish: Callable[[Path, list[Any]], None] | None = None  # runs after all parts are written

    def __call__(self, events: EventArrays, path: Path) -> None:
        """Write the complete format into the new folder `path`."""
        path.mkdir()
        results = []
        for number, (block, _) in enumerate(events.blocks(self.title, self.size)):
            results.append(self.write(events, block, path / self.name(number)))
        if self.finish:
            self.finish(path, results)


def write_npy(events: EventArrays, path: Path) -> None:
    """Write the folder `path`, named npy, and the labels next to it."""
    events.save(path.parent)


def write_events(folder: Path, table: NDArray[np.void], blocks: Iterable[Block]) -> int:
    """Write events into an empty folder and return the number of pulses.

    Args:
        folder: Existing folder to write to.
        table: One row per event, dtype EVENT.
        blocks: Pulses (n, 4) of the next events, and the number of pulses of each event.
    """
    path, counts = folder / "npy/pulses.npy", [np.zeros(1, np.int64)]
    path.parent.mkdir()
    with path.open("wb") as file:
        _write_header(file, 0)
        for pulses, block_counts in blocks:
            file.write(np.ascontiguousarray(pulses, "<f4").data)
            counts.append(block_counts)
        offsets: NDArray[np.int64] = np.concatenate(counts).cumsum()
        file.seek(0)
        _write_header(file, int(offsets[-1]))
    np.save(path.with_name("offsets.npy"), offsets)
    written = np.load(path, mmap_mode="r") if offsets[-1] else b""
    crc32 = [zlib.crc32(written[slice(*edges)]) for edges in pairwise(offsets.tolist())]
    write_labels(folder, table, crc32)
    return int(offsets[-1])


def _write_header(file: BinaryIO, rows: int) -> None:
    """Write the header of an .npy file; numpy reserves space for more digits of `rows`."""
    write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, 4)})
