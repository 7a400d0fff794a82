"""One SQLite database with a row per pulse and an index, as in many experiments."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import apsw
import numpy as np

from course_utils.loading.events.contract import PULSE, Events, Pulses
from course_utils.loading.events.labels import EVENT, EVENT_COLUMNS
from course_utils.loading.events.npy import EventArrays
from keepfed.files import open_file
from keepfed.measure.spans import stage

_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def connect(path: str, fs: Any = None) -> apsw.Connection:
    """Open a database that is never written to: SQLite uses no locks and no journal.

    Raises:
        apsw.Error: If there is no readable database at `path`.
    """
    if fs is None:
        return apsw.Connection(f"{Path(path).absolute().as_uri()}?immutable=1", _FLAGS)
    file_system = _FileSystem(path, fs)
    return apsw.Connection("file:database?immutable=1", _FLAGS, vfs=file_system.name)


class _FileSystem(apsw.VFS):
    """SQLite file system with a single file from fsspec. The connection keeps it alive."""

    def __init__(self, path: str, fs: Any):
        self.path, self.fs, self.name = path, fs, f"fsspec-{id(self)}"
        super().__init__(self.name, base="")

    def xFullPathname(self, name: str) -> str:
        return name

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _Pages(open_file(self.path, self.fs))


class _Pages:
    """A file, read by SQLite page by page: each page is one request."""

    def __init__(self, file: BinaryIO):
        self.file = file

    def xRead(self, amount: int, offset: int) -> bytes:
        self.file.seek(offset)
        return self.file.read(amount)

    def xFileSize(self) -> int:
        return self.file.seek(0, 2)

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:  # apsw before 3.54 asks for it
        return 4096

    def xClose(self) -> None:
        self.file.close()


class SqliteEvents(Events):
    """One SQLite database with a row per pulse, and an index: one query per batch."""

    entry = "events.db"
    _open = staticmethod(connect)

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        query = (
            f"SELECT event_row, {', '.join(PULSE)} FROM pulses "
            "WHERE event_row IN (SELECT value FROM json_each(?)) ORDER BY event_row, rowid"
        )
        with stage("read"):
            rows = self.file.execute(query, (json.dumps(indices),)).fetchall()
        with stage("decode"):
            table = np.array(rows, np.float64).reshape(-1, 1 + len(PULSE))
            first = np.searchsorted(table[:, 0], indices, "left")
            last = np.searchsorted(table[:, 0], indices, "right")
            pulses = table[:, 1:].astype(np.float32)
            return [pulses[slice(*edges)].copy() for edges in zip(first, last, strict=True)]


def write_sqlite(events: EventArrays, path: Path) -> None:
    """Write the tables `events` and `pulses`; pulses.event_row is the row of the event, from 0.

    SQLite cannot store -0.0 or NaN, but pulses contain neither.
    """
    kinds = {"i": "INTEGER", "u": "INTEGER", "f": "REAL"}
    columns = [f"{name} {kinds[EVENT[name].kind]}" for name in EVENT_COLUMNS]
    values = ", ".join("?" for _ in columns)
    with closing(sqlite3.connect(path)) as database:
        # Without a journal, a killed writer leaves only one file behind.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute(
            f"CREATE TABLE events (event_row INTEGER PRIMARY KEY, {', '.join(columns)})"
        )
        database.execute(
            "CREATE TABLE pulses (event_row INTEGER, time REAL, charge REAL, sensor_id INTEGER, "
            "auxiliary INTEGER)"
        )
        for block, rows in events.blocks("sqlite"):
            numbers = np.arange(len(events))[block]
            table = zip(numbers.tolist(), events.table[block].tolist(), strict=True)
            database.executemany(
                f"INSERT INTO events VALUES (?, {values})", ((row, *event) for row, event in table)
            )
            of = np.repeat(numbers, np.diff(events.offsets)[block])
            pulses = zip(of.tolist(), *events.pulses[rows].T.tolist(), strict=True)
            database.executemany("INSERT INTO pulses VALUES (?, ?, ?, ?, ?)", pulses)
        database.execute("CREATE INDEX pulses_of_event ON pulses (event_row)")
        database.commit()
