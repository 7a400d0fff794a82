"""Read events from what experiments archive: a SQLite database, tar shards, a ROOT file.

    events = TarEvents(data_path("events"))  # after `convert_events data/events-S --to tar`

They keep the same rules as the datasets in `datasets`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, ClassVar

import numpy as np

from course_utils.loading.events.contract import Events, Pulses
from course_utils.loading.events.datasets import GroupEvents, neighbours
from course_utils.loading.events.labels import open_file
from course_utils.loading.events.sqlite_file import connect
from course_utils.measure.spans import stage

COLUMNS = ("time", "charge", "sensor_id", "auxiliary")


class SqliteEvents(Events):
    """One SQLite database with a row per pulse, and an index: one query for a batch."""

    variants: ClassVar = {"sqlite": "events.db"}

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        return connect(path, fs)

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        query = (
            f"SELECT event_row, {', '.join(COLUMNS)} FROM pulses "
            "WHERE event_row IN (SELECT value FROM json_each(?)) ORDER BY event_row, rowid"
        )
        with self._blaming(min(indices, default=0)):
            with stage("read"):
                found = self.file.execute(query, (json.dumps(indices),)).fetchall()
            with stage("decode"):
                table = np.array(found, np.float64).reshape(-1, 1 + len(COLUMNS))
                first = np.searchsorted(table[:, 0], indices, "left")
                last = np.searchsorted(table[:, 0], indices, "right")
                pulses = table[:, 1:].astype(np.float32)
                return [pulses[slice(*rows)].copy() for rows in zip(first, last, strict=True)]


class TarEvents(Events):
    """Shards as webdataset reads them, and an index: one range of bytes for an event."""

    variants: ClassVar = {"tar": "tar"}
    max_gap = 65536  # bytes between two events: to read them along costs less than one more request

    def __init__(self, folder: str | Path, *, fs: Any = None):
        """Read the labels, and where each event is."""
        super().__init__(folder, fs=fs)
        path = f"{self.path}/index.npy"
        with self._blaming(0, path), open_file(path, fs) as file:
            places = np.load(BytesIO(file.read())).astype(np.int64, casting="equiv")
            self.shard, self.first, self.size = places.reshape(len(self), 3).T.copy()
            if not set(np.diff(self.shard, prepend=0).tolist()) <= {0, 1} or (places >> 40).any():
                raise ValueError("the shards do not follow one another, or are too large to be")

    def path_of(self, index: int) -> str:
        """Return the shard of one event."""
        return Shards.path(self.path, self.shard[index])

    @staticmethod
    def _open(path: str, fs: Any) -> Shards:
        return Shards(path, fs)

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        found: dict[int, Pulses] = {}
        for shard, group in groupby(sorted(set(indices)), self.shard.__getitem__):
            for run in neighbours(list(group), self.first, self.max_gap):
                start, stop = self.first[run[0]], self.first[run[-1]] + self.size[run[-1]]
                with self._blaming(run[0]), stage("read"):
                    content = self.file.read(shard, start, stop)
                with stage("decode"):
                    for index in run:
                        with self._blaming(index):
                            member = content[self.first[index] - start :][: self.size[index]]
                            found[index] = np.load(BytesIO(member))
        return [found[index].copy() for index in indices]


class Shards:
    """The shards of a folder; the last few stay open."""

    open_at_once = 64

    def __init__(self, folder: str, fs: Any = None):
        """Open nothing yet."""
        self.folder, self.fs = folder, fs
        self._files: dict[int, BinaryIO] = {}
        self._lock = Lock()

    @staticmethod
    def path(folder: str, shard: int) -> str:
        """Return where a shard is."""
        return f"{folder}/events-{shard:05d}.tar"

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop` of a shard."""
        with self._lock:
            if shard not in self._files:
                if len(self._files) == self.open_at_once:
                    self._files.pop(next(iter(self._files))).close()
                self._files[shard] = open_file(self.path(self.folder, shard), self.fs)
            self._files[shard].seek(start)
            return self._files[shard].read(stop - start)

    def close(self) -> None:
        """Close them all."""
        while self._files:
            self._files.popitem()[1].close()


class RootEvents(GroupEvents):
    """One ROOT file with an entry per event; the least it can read is a basket of each column."""

    variants: ClassVar = {"root": "events.root"}

    def __init__(self, folder: str | Path, *, fs: Any = None):
        """Read the labels, and where the baskets begin."""
        super().__init__(folder, fs=fs)
        with self._blaming(0), self._open(self.path, fs) as tree:
            self.edges = np.array(tree.common_entry_offsets(), np.int64)

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        import uproot

        file = open_file(path, fs)
        try:
            # all threads read through the one that uproot starts, so that none moves another's file
            return uproot.open(file, array_cache=None, object_cache=None)["events"]
        except BaseException:
            file.close()
            raise

    def _place(self, index: int) -> tuple[int, int]:
        group = int(np.searchsorted(self.edges, index, "right")) - 1
        return group, index - int(self.edges[group])

    def _group(self, group: int) -> list[Pulses]:
        entries = dict(zip(("entry_start", "entry_stop"), self.edges[group:][:2], strict=True))
        with stage("read"):
            arrays = self.file.arrays(COLUMNS, library="np", **entries)
        with stage("decode"):
            events = zip(*(arrays[name] for name in COLUMNS), strict=True)
            return [np.column_stack(event).astype(np.float32, copy=False) for event in events]
