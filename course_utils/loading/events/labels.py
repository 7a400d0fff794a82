"""Read what is known of each event, and where the sensors are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

CASCADE, TRACK = 0, 1

_TYPES = {
    "event_id": "int64",
    "run_id": "int32",
    "azimuth": "float32",
    "zenith": "float32",
    "energy_gev": "float32",
    "kind": "uint8",
    "crc32": "uint32",
}


@dataclass(frozen=True)
class Labels:
    """What is known of each event: one array per quantity, not one object per event.

    Forked workers share arrays, while Python objects are copied into each worker that touches them.
    """

    event_id: NDArray[np.int64]
    run_id: NDArray[np.int32]
    energy: NDArray[np.float32]  # log10 of the energy in GeV
    direction: NDArray[np.float32]  # (events, 3), unit vectors to where the particle came from
    kind: NDArray[np.uint8]  # CASCADE or TRACK
    crc32: NDArray[np.uint32] | None = None  # of the bytes of the pulses; None: not known

    def __len__(self) -> int:
        return len(self.event_id)


def read_labels(folder: str | Path, fs: Any = None) -> Labels:
    """Read events.parquet of a folder of events, through the fsspec file system `fs` if given.

    Raises:
        FileNotFoundError: the folder holds no events.
        OSError: events.parquet is corrupted.
    """
    path = f"{folder}/events.parquet"
    if not exists(path, fs):
        raise FileNotFoundError(
            f"{folder} holds no events; make some with `python -m data_scripts.make_events --out "
            f"{folder}`."
        )
    try:
        with open_file(path, fs) as file:
            column = _read_columns(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise OSError(
            f"The labels cannot be read, {path} is corrupted; to see what to do about it, run "
            f"`python -m data_scripts.make_events --check --out {folder}`."
        ) from error
    return Labels(
        event_id=column["event_id"],
        run_id=column["run_id"],
        energy=np.log10(column["energy_gev"]),
        direction=unit_vectors(column["azimuth"], column["zenith"]),
        kind=column["kind"],
        crc32=column.get("crc32"),
    )


def _read_columns(file: BinaryIO) -> dict[str, NDArray[Any]]:
    """Return the columns of events.parquet; what its checksums leave out is looked at here."""
    parquet = pq.ParquetFile(file, page_checksum_verification=True)
    table = parquet.read()
    column = {name: table[name].to_numpy() for name in table.column_names}
    types = {name: str(array.dtype) for name, array in column.items()}
    if len(table) != parquet.metadata.num_rows or {"crc32": "uint32"} | types != _TYPES:
        raise ValueError("its footer does not fit its columns")
    return column


def unit_vectors(azimuth: NDArray[np.float32], zenith: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x, y, z of directions given as angles, shape (n, 3)."""
    flat = np.sin(zenith)
    return np.stack([np.cos(azimuth) * flat, np.sin(azimuth) * flat, np.cos(zenith)], axis=1)


def read_sensors(folder: str | Path) -> NDArray[np.float32]:
    """Return x, y, z of all sensors in metres, shape (5160, 3); the row is the sensor_id."""
    rows = np.loadtxt(Path(folder) / "sensor_geometry.csv", np.float32, delimiter=",", skiprows=1)
    return rows[:, 1:]


def open_file(path: str, fs: Any = None) -> BinaryIO:
    """Open a file for reading, on the disk or on a file system of fsspec."""
    if fs is None:
        return Path(path).open("rb")
    file: BinaryIO = fs.open(path)
    return file


def exists(path: str, fs: Any = None) -> bool:
    """Tell whether there is such a file or folder."""
    return Path(path).exists() if fs is None else bool(fs.exists(path))
