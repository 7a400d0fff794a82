"""Write events as one SQLite database: a row per pulse and an index, as many experiments do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from data_scripts.blocks import blocks
from data_scripts.catalogue import EVENT
from data_scripts.native import Events

_PULSES = "event_row INTEGER, time REAL, charge REAL, sensor_id INTEGER, auxiliary INTEGER"


def write(events: Events, path: Path) -> None:
    """Write the tables `events` and `pulses`; pulses.event_row is the row of their event, from 0.

    SQLite has neither -0.0 nor NaN, and pulses have none.
    """
    kinds = {"i": "INTEGER", "u": "INTEGER", "f": "REAL"}
    columns = [f"{name} {kinds[EVENT[name].kind]}" for name in EVENT.names or ()]
    values = ", ".join("?" for _ in columns)
    with closing(sqlite3.connect(path)) as database:
        # no second file that a writer who is killed would leave
        database.execute("PRAGMA journal_mode = OFF")
        database.execute(
            f"CREATE TABLE events (event_row INTEGER PRIMARY KEY, {', '.join(columns)})"
        )
        database.execute(f"CREATE TABLE pulses ({_PULSES})")
        for block, rows in blocks(events, "sqlite"):
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
