"""Read the public IceCube data (Kaggle competition "IceCube - Neutrinos in Deep Ice", 2023).

    train_meta.parquet      batch_id, event_id, first_pulse_index, last_pulse_index, azimuth, zenith
    train/batch_N.parquet   one row per pulse: event_id (index), sensor_id, time, charge, auxiliary
    sensor_geometry.csv     sensor_id, x, y, z

The public data contain no energy, kind or run. These become NaN, UNKNOWN and the batch number.
Charges are float64 there and float32 here. All other values are copied exactly.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from course_utils.errors import CourseError
from course_utils.loading.events import EVENT, Block, write_events
from data_scripts import files

UNKNOWN = 255

_META = ["batch_id", "event_id", "first_pulse_index", "last_pulse_index", "azimuth", "zenith"]
_PULSES = ["event_id", "time", "charge", "sensor_id", "auxiliary"]
_PULSES_AT_ONCE = 1_000_000


def read_meta(source: Path, batches: Sequence[int] | None) -> pa.Table:
    """Return the events of `batches` (None: all), in the order of their pulses."""
    path = source / "train_meta.parquet"
    wanted = None if batches is None else [("batch_id", "in", batches)]
    with _whole(path):
        meta = pq.read_table(path, columns=_META, filters=wanted).select(_META)
    if not len(meta):
        raise CourseError(f"{path} does not contain batch {batches}. Choose others with --batches.")
    return meta.sort_by([("batch_id", "ascending"), ("first_pulse_index", "ascending")])


def room(meta: pa.Table) -> int:
    """Return the disk space in bytes for the events of `meta` in our layout, rounded up."""
    return 16 * int(_counts(meta).sum()) + 100 * len(meta)


def build(folder: Path, source: Path, meta: pa.Table) -> files.Facts:
    """Write the events of `meta` into an empty folder in our layout, and return their counts."""
    table = np.zeros(len(meta), EVENT)
    for name in ("event_id", "azimuth", "zenith"):
        table[name] = meta[name].to_numpy()
    table["run_id"] = meta["batch_id"].to_numpy()
    table["energy_gev"] = np.nan
    table["kind"] = UNKNOWN
    shutil.copyfile(source / "sensor_geometry.csv", folder / "sensor_geometry.csv")
    pulses = write_events(folder, table, _blocks(source, table, _counts(meta)))
    return {"counts": {"events": len(table), "pulses": pulses}}


def _counts(meta: pa.Table) -> NDArray[np.int64]:
    first, last = meta["first_pulse_index"].to_numpy(), meta["last_pulse_index"].to_numpy()
    return np.asarray(last - first + 1, np.int64)


def _blocks(source: Path, table: NDArray[np.void], counts: NDArray[np.int64]) -> Iterator[Block]:
    """Yield the pulses batch by batch, a bounded number at a time."""
    for batch in tqdm(np.unique(table["run_id"]), desc="kaggle", unit="batch", disable=None):
        of_batch = table["run_id"] == batch
        expected = np.repeat(table["event_id"][of_batch], counts[of_batch])
        path = source / "train" / f"batch_{batch}.parquet"
        yield np.empty((0, 4), np.float32), counts[of_batch]
        with _whole(path), pq.ParquetFile(path) as file:
            for rows in file.iter_batches(_PULSES_AT_ONCE, columns=_PULSES):
                event_id, *columns = (rows[name].to_numpy(zero_copy_only=False) for name in _PULSES)
                if not np.array_equal(event_id, expected[: len(event_id)]):
                    raise ValueError("its events are not those of train_meta.parquet")
                with np.errstate(over="ignore"):  # the next line finds them
                    pulses = np.column_stack(columns).astype(np.float32)
                if not np.isfinite(pulses).all():
                    raise ValueError("a value is missing, or too large for float32")
                expected = expected[len(event_id) :]
                yield pulses, np.empty(0, np.int64)
            if len(expected):
                raise ValueError("it has fewer pulses than train_meta.parquet says")


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turn what pyarrow or a check says about a file into the next step."""
    try:
        yield
    except (ValueError, KeyError) as error:  # those of pyarrow are among them
        raise CourseError(
            f"{path} does not fit the competition: {error}. Download the file again."
        ) from error
