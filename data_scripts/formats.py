"""Write events in other file formats. A new one is one function and one line in FORMATS."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm, trange

from data_scripts.native import Events

FILES_PER_FOLDER = 1000
EVENTS_PER_ROW_GROUP = 256

_PULSE_TYPES = {
    "time": pa.float32(),
    "charge": pa.float32(),
    "sensor_id": pa.int16(),
    "auxiliary": pa.bool_(),
}


class Format(NamedTuple):
    """How to write events, and the name of the file or folder that this makes."""

    name: str
    write: Callable[[Events, Path], None]


def write_npz(events: Events, path: Path) -> None:
    """Write one .npz per event: `pulses`, and its row of the table as `event`."""
    for index in trange(len(events), desc="npz", unit="event", disable=None):
        target = path / npz_name(index)
        if index % FILES_PER_FOLDER == 0:
            target.parent.mkdir(parents=True)
        np.savez(target, pulses=events[index], event=events.table[index])


def npz_name(index: int) -> str:
    """Return where event `index` is below the npz folder, such as 002/002345.npz."""
    return f"{index // FILES_PER_FOLDER:03d}/{index:06d}.npz"


def write_hdf5(events: Events, path: Path) -> None:
    """Write the datasets `pulses`, `offsets` and `events`, each in one piece."""
    with h5py.File(path, "w") as file:
        file["events"] = events.table
        file["offsets"] = events.offsets
        pulses = file.create_dataset("pulses", events.pulses.shape, "<f4")
        for _, rows in _groups(events, "hdf5"):
            pulses[rows] = events.pulses[rows]


def write_parquet(events: Events, path: Path) -> None:
    """Write one row per pulse; a row group holds EVENTS_PER_ROW_GROUP whole events."""
    note = {"events_per_row_group": str(EVENTS_PER_ROW_GROUP)}
    schema = pa.schema({"event_id": pa.int64(), **_PULSE_TYPES}, note)
    with pq.ParquetWriter(path, schema) as writer:
        for group, rows in _groups(events, "parquet"):
            ids = np.repeat(events.table["event_id"][group], np.diff(events.offsets)[group])
            columns = dict(zip(_PULSE_TYPES, events.pulses[rows].T, strict=True))
            writer.write_table(pa.table({"event_id": ids, **columns}).cast(schema))


FORMATS = {
    "npz": Format("npz", write_npz),
    "hdf5": Format("events.h5", write_hdf5),
    "parquet": Format("pulses.parquet", write_parquet),
}


def _groups(events: Events, title: str) -> Iterator[tuple[slice, slice]]:
    """Yield the events of each row group and their pulses, as slices."""
    with tqdm(total=len(events), desc=title, unit="event", disable=None) as bar:
        for first in range(0, len(events), EVENTS_PER_ROW_GROUP):
            last = min(first + EVENTS_PER_ROW_GROUP, len(events))
            yield slice(first, last), slice(*events.offsets[[first, last]])
            bar.update(last - first)
