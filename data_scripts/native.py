"""Read and write the course's own layout of ragged events: all pulses in one file, and offsets.

npy/pulses.npy        float32 (pulses, 4): time in ns, charge in pe, sensor_id, auxiliary 0 or 1
npy/offsets.npy       int64 (events + 1,): event i has the pulses offsets[i] to offsets[i + 1]
events.parquet        one row per event, columns as in catalogue.EVENT, and crc32 of the pulses
sensor_geometry.csv   sensor_id, x, y, z in metres
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

from data_scripts.catalogue import EVENT

Block = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class Events:
    """Ragged events in memory or, as far as the pulses go, still on the disk."""

    table: NDArray[np.void]  # dtype EVENT
    offsets: NDArray[np.int64]
    pulses: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        return self.pulses[self.offsets[index] : self.offsets[index + 1]]


def load(folder: Path) -> Events:
    """Open the events in `folder`; the pulses are mapped, not read."""
    columns = pq.read_table(folder / "events.parquet")
    table = np.empty(len(columns), EVENT)
    for name in EVENT.names or ():
        table[name] = columns[name].to_numpy()
    pulses = np.load(folder / "npy/pulses.npy", mmap_mode="r")
    return Events(table, np.load(folder / "npy/offsets.npy"), pulses)


def save(folder: Path, table: NDArray[np.void], blocks: Iterable[Block]) -> int:
    """Write events into an empty folder and return the number of pulses.

    Args:
        folder: where to write; it exists.
        table: one row per event, dtype EVENT.
        blocks: pulses (n, 4) of the next few events, and how many of them each event has.
    """
    (folder / "npy").mkdir()
    counts = [np.zeros(1, np.int64)]
    with (folder / "npy/pulses.npy").open("wb") as file:
        _write_header(file, 0)
        for pulses, block_counts in blocks:
            file.write(np.ascontiguousarray(pulses, "<f4").data)
            counts.append(block_counts)
        offsets = np.concatenate(counts).cumsum()
        file.seek(0)
        _write_header(file, int(offsets[-1]))
    np.save(folder / "npy/offsets.npy", offsets)
    _write_table(folder, table, offsets)
    return int(offsets[-1])


def save_geometry(path: Path, positions: NDArray[np.float32]) -> None:
    """Write x, y, z (n, 3) as CSV; sensor_id is the row."""
    rows = np.column_stack([np.arange(len(positions)), positions])
    np.savetxt(path, rows, "%d,%.3f,%.3f,%.3f", header="sensor_id,x,y,z", comments="")


def _write_table(folder: Path, table: NDArray[np.void], offsets: NDArray[np.int64]) -> None:
    """Write events.parquet, with checksums, since all other formats are held to what it says."""
    pulses = np.load(folder / "npy/pulses.npy", mmap_mode="r") if offsets[-1] else b""
    crc32 = [zlib.crc32(pulses[slice(*edges)]) for edges in pairwise(offsets.tolist())]
    columns = {name: table[name] for name in EVENT.names or ()}
    columns["crc32"] = np.array(crc32, np.uint32)
    pq.write_table(pa.table(columns), folder / "events.parquet", write_page_checksum=True)


def _write_header(file: BinaryIO, rows: int) -> None:
    """Write the start of a .npy file; numpy leaves room in it for the number of rows to grow."""
    write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, 4)})
