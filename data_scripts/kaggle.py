"""Read the public IceCube data (Kaggle competition "IceCube - Neutrinos in Deep Ice", 2023).

    train_meta.parquet      batch_id, event_id, first_pulse_index, last_pulse_index, azimuth, zenith
    train/batch_N.parquet   one row per pulse: event_id (index), sensor_id, time, charge, auxiliary
    sensor_geometry.csv     sensor_id, x, y, z

The public data contain no energy, kind or run. These become NaN, UNKNOWN and the batch number.
Charges are float64 there and float32 here. All other values are copied exactly.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from course_utils.errors import CourseError
from course_utils.loading.events import EVENT, Block, read_sensors, write_events
from keepfed.formatting import plural

UNKNOWN = 255

_META = ["batch_id", "event_id", "first_pulse_index", "last_pulse_index", "azimuth", "zenith"]
_PULSES = ["event_id", "time", "charge", "sensor_id", "auxiliary"]
_PULSES_AT_ONCE = 1_000_000


def read_meta(source: Path, batches: Sequence[int] | None) -> pa.Table:
    """Return the events of `batches` (None: all), in the order of their pulses."""
    path = source / "train_meta.parquet"
    wanted = None if batches is None else [("batch_id", "in", batches)]
    _open(path, _META).close()
    meta = pq.read_table(path, columns=_META, filters=wanted)
    if not len(meta):
        raise CourseError(f"{path} does not contain batch {batches}. Choose others with --batches.")
    for name in _META:
        _check(path, name, meta[name])
    first, last = meta["first_pulse_index"].to_numpy(), meta["last_pulse_index"].to_numpy()
    if (last < first).any():
        raise CourseError(
            f"{path} has an event whose last_pulse_index is before its first_pulse_index. Download "
            "the file again."
        )
    return meta.sort_by([("batch_id", "ascending"), ("first_pulse_index", "ascending")])


def room(meta: pa.Table) -> int:
    """Return the disk space in bytes for the events of `meta` in our layout, rounded up."""
    return 16 * int(_counts(meta).sum()) + 100 * len(meta)


def build(folder: Path, source: Path, meta: pa.Table) -> dict[str, dict[str, int]]:
    """Write the events of `meta` into an empty folder in our layout, and return their counts."""
    table = np.zeros(len(meta), EVENT)
    for name in ("event_id", "azimuth", "zenith"):
        table[name] = meta[name].to_numpy()
    table["run_id"] = meta["batch_id"].to_numpy()
    table["energy_gev"] = np.nan
    table["kind"] = UNKNOWN
    shutil.copyfile(source / "sensor_geometry.csv", folder / "sensor_geometry.csv")
    counts = _counts(meta)
    sensors = len(read_sensors(folder))
    pulses = write_events(folder, table, _blocks(source, table, counts, sensors))
    return {"counts": {"events": len(table), "pulses": pulses}}


def _counts(meta: pa.Table) -> NDArray[np.int64]:
    first, last = meta["first_pulse_index"].to_numpy(), meta["last_pulse_index"].to_numpy()
    return np.asarray(last - first + 1, np.int64)


def _blocks(
    source: Path, table: NDArray[np.void], counts: NDArray[np.int64], sensors: int
) -> Iterator[Block]:
    """Yield the pulses batch by batch, a bounded number at a time."""
    for batch in tqdm(np.unique(table["run_id"]), desc="kaggle", unit="batch", disable=None):
        of_batch = table["run_id"] == batch
        expected = np.repeat(table["event_id"][of_batch], counts[of_batch])
        path = source / "train" / f"batch_{batch}.parquet"
        yield np.empty((0, 4), np.float32), counts[of_batch]
        with _open(path, _PULSES) as file:
            if file.metadata.num_rows != len(expected):
                raise _disagreement(path)
            for rows in file.iter_batches(_PULSES_AT_ONCE, columns=_PULSES):
                for name in _PULSES:
                    _check(path, name, rows[name])
                ids, *columns = (rows[name].to_numpy(zero_copy_only=False) for name in _PULSES)
                if columns[2].min() < 0 or columns[2].max() >= sensors:
                    raise CourseError(
                        f"{path} has a pulse of a sensor that is not in sensor_geometry.csv, which "
                        f"has {sensors}. Download both files again."
                    )
                if not np.array_equal(ids, expected[: len(ids)]):
                    raise _disagreement(path)
                expected = expected[len(ids) :]
                yield np.column_stack(columns).astype(np.float32), np.empty(0, np.int64)


def _check(path: Path, name: str, column: Any) -> None:
    """Raise an error that names the column if a value is missing or no finite float32."""
    if not pa.types.is_primitive(column.type):
        problem = f"has the type {column.type} instead of numbers"
    elif column.null_count:
        problem = f"has {plural(column.null_count, 'missing value')} (null)"
    else:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        values = pa.chunked_array(chunks).to_numpy()
        if values.dtype.kind != "f":
            return
        most = np.finfo(np.float32).max
        if not (broken := np.flatnonzero(~(np.abs(values) <= most))).size:
            return
        problem = f"has a value that is NaN or too large, {values[broken[0]]}, in row {broken[0]}"
    raise CourseError(
        f"The column {name} of {path} {problem}. Download the file again, or correct the value."
    )


def _open(path: Path, columns: list[str]) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise CourseError(f"{path} is not a complete Parquet file. Download it again.") from error
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise CourseError(
            f"{path} has no column {missing[0]}. Download the file of the competition again."
        )
    return file


def _disagreement(path: Path) -> CourseError:
    return CourseError(f"{path} and train_meta.parquet do not match. Download both files again.")
