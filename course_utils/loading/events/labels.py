"""Read and write the labels of the events and the positions of the sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from keepfed.files import open_file
from keepfed.reading import reading

CASCADE, TRACK = 0, 1
CHECK = "To find out how to fix it, run `python -m data_scripts.make_events --check --out {}`"

# one row of events.parquet, which also has the crc32 of the pulses
EVENT = np.dtype(
    [
        ("event_id", "<i8"),
        ("run_id", "<i4"),
        ("azimuth", "<f4"),
        ("zenith", "<f4"),
        ("energy_gev", "<f4"),
        ("kind", "u1"),
    ]
)
EVENT_COLUMNS: tuple[str, ...] = EVENT.names or ()


@dataclass(frozen=True)
class Labels:
    """Labels of all events: one array per quantity, not one object per event.

    Forked workers share arrays, but each worker copies the Python objects that it touches.
    """

    event_id: NDArray[np.int64]
    run_id: NDArray[np.int32]
    energy: NDArray[np.float32]  # log10 of the energy in GeV
    direction: NDArray[np.float32]  # (events, 3), unit vectors to where the particle came from
    kind: NDArray[np.uint8]  # CASCADE or TRACK
    crc32: NDArray[np.uint32]  # checksum of the pulses

    def __len__(self) -> int:
        return len(self.event_id)


def read_labels(folder: str | Path, fs: Any = None) -> Labels:
    """Read events.parquet of a folder, through the fsspec file system `fs` if given.

    Raises:
        FileNotFoundError: If the folder contains no events.
        OSError: If events.parquet is corrupted.
    """
    path = f"{folder}/events.parquet"
    with reading(path, step=CHECK.format(folder)), open_file(path, fs) as file:
        column = _read_columns(file)
    return Labels(
        event_id=column["event_id"],
        run_id=column["run_id"],
        energy=np.log10(column["energy_gev"]),
        direction=unit_vectors(column["azimuth"], column["zenith"]),
        kind=column["kind"],
        crc32=column["crc32"],
    )


def _read_columns(file: BinaryIO) -> dict[str, NDArray[Any]]:
    """Return the columns of events.parquet, and check what its page checksums do not cover."""
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file, page_checksum_verification=True)
    table = parquet.read()
    column = {name: table[name].to_numpy() for name in table.column_names}
    types = {name: array.dtype for name, array in column.items()}
    wanted = {name: EVENT[name] for name in EVENT_COLUMNS} | {"crc32": np.dtype("<u4")}
    if len(table) != parquet.metadata.num_rows or types != wanted:
        raise ValueError("its footer does not match its columns, or these have other types")
    return column


def write_labels(folder: Path, table: NDArray[np.void], crc32: Sequence[int]) -> None:
    """Write events.parquet, with the checksums that all formats of the pulses must match.

    Args:
        folder: Folder to write to.
        table: One row per event, dtype EVENT.
        crc32: Checksum of the pulses of each event.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: table[name] for name in EVENT_COLUMNS}
    columns["crc32"] = np.array(crc32, np.uint32)
    pq.write_table(pa.table(columns), folder / "events.parquet", write_page_checksum=True)


def unit_vectors(azimuth: NDArray[np.float32], zenith: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x, y, z of directions given as angles, shape (n, 3)."""
    flat = np.sin(zenith)
    return np.stack([np.cos(azimuth) * flat, np.sin(azimuth) * flat, np.cos(zenith)], axis=1)


def read_sensors(folder: str | Path, fs: Any = None) -> NDArray[np.float32]:
    """Return x, y, z of all sensors in meters, shape (5160, 3). The row is the sensor_id.

    Reads through the fsspec file system `fs` if given.
    """
    path = f"{folder}/sensor_geometry.csv"
    with reading(path, step=CHECK.format(folder)), open_file(path, fs) as file:
        rows = np.loadtxt(BytesIO(file.read()), np.float32, delimiter=",", skiprows=1)
        return rows[:, 1:]


def write_sensors(folder: Path, positions: NDArray[np.float32]) -> None:
    """Write x, y, z of all sensors in meters, shape (n, 3). The row is the sensor_id."""
    rows = np.column_stack([np.arange(len(positions)), positions])
    header = "sensor_id,x,y,z"
    np.savetxt(
        folder / "sensor_geometry.csv", rows, "%d,%.3f,%.3f,%.3f", header=header, comments=""
    )
