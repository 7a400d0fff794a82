"""Write events as one Parquet file, with row groups that suit the reader, or with a large one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_scripts.blocks import EVENTS_AT_ONCE, blocks
from data_scripts.native import Events

EVENTS_IN_LARGE_GROUP = 200_000

_PULSE_TYPES = {
    "time": pa.float32(),
    "charge": pa.float32(),
    "sensor_id": pa.int16(),
    "auxiliary": pa.bool_(),
}


def write(events: Events, path: Path) -> None:
    """Write one row per pulse; a row group holds EVENTS_AT_ONCE whole events."""
    _write(events, path, "parquet", EVENTS_AT_ONCE, "snappy")


def write_large_group(events: Events, path: Path) -> None:
    """Write the same as small as it gets: the least that can be read is nearly everything."""
    _write(events, path, "parquet-zstd", EVENTS_IN_LARGE_GROUP, "zstd")


def _write(events: Events, path: Path, title: str, per_group: int, compression: str) -> None:
    note = {"events_per_row_group": str(per_group)}
    schema = pa.schema({"event_id": pa.int64(), **_PULSE_TYPES}, note)
    with pq.ParquetWriter(path, schema, compression=compression) as writer:
        for group, rows in blocks(events, title, size=per_group):
            ids = np.repeat(events.table["event_id"][group], np.diff(events.offsets)[group])
            columns = dict(zip(_PULSE_TYPES, events.pulses[rows].T, strict=True))
            table = pa.table({"event_id": ids, **columns}).cast(schema)
            writer.write_table(table, row_group_size=len(table))
