"""One Parquet file, with row groups that suit the reader, or with one large row group."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from course_utils.loading.events.contract import PULSE, GroupEvents, Pulses
from course_utils.loading.events.npy import EVENTS_AT_ONCE, EventArrays
from keepfed.measure.spans import stage

_LARGE_GROUP = 200_000  # events


class ParquetEvents(GroupEvents):
    """One Parquet file with one row per pulse. The smallest readable unit is a row group."""

    entry = "pulses.parquet"

    def _find(self) -> None:
        with self._open(self.path, self.fs) as file:
            self.events_per_group = int(file.schema_arrow.metadata[b"events_per_row_group"])

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(path, filesystem=fs, pre_buffer=True)
        # The file buffers one row group. A second thread would evict the group that the first one
        # waits for, which then hangs. The lock lets one thread read at a time.
        file.turn = Lock()
        return file

    def _locate(self, index: int) -> tuple[int, int]:
        return divmod(index, self.events_per_group)

    def _group(self, group: int) -> list[Pulses]:
        file = self.file
        with stage("read"), file.turn:
            table = file.read_row_group(group, use_threads=False)
        with stage("decode"):
            event_id, *columns = (column.to_numpy() for column in table.itercolumns())
            pulses = np.column_stack(columns).astype(np.float32, copy=False)
            return np.split(pulses, np.flatnonzero(np.diff(event_id)) + 1)


def write_parquet(events: EventArrays, path: Path, *, large: bool = False) -> None:
    """Write one row per pulse. A row group contains EVENTS_AT_ONCE complete events.

    A `large` group gives the smallest file, but almost the whole file must be read for one event.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    title, per_group, codec = "parquet", EVENTS_AT_ONCE, "snappy"
    if large:
        title, per_group, codec = "parquet-zstd", _LARGE_GROUP, "zstd"
    types = {name: pa.type_for_alias(kind) for name, kind in PULSE.items()}
    note = {"events_per_row_group": str(per_group)}
    schema = pa.schema({"event_id": pa.int64(), **types}, note)
    with pq.ParquetWriter(path, schema, compression=codec) as writer:
        for group, rows in events.blocks(title, per_group):
            ids = np.repeat(events.table["event_id"][group], np.diff(events.offsets)[group])
            columns = dict(zip(PULSE, events.pulses[rows].T, strict=True))
            table = pa.table({"event_id": ids, **columns}).cast(schema)
            writer.write_table(table, row_group_size=len(table))
