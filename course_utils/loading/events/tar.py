"""Tar shards for webdataset, with an index of the position of each event."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np

from course_utils.loading.events.contract import Events, Pulses, neighbors
from course_utils.loading.events.labels import EVENT_COLUMNS
from course_utils.loading.events.npy import EventArrays, Parts
from keepfed.files import open_file
from keepfed.measure.spans import stage

_EVENTS_PER_SHARD = 250


def shard_name(shard: int) -> str:
    """Return the file name of a shard."""
    return f"events-{shard:05d}.tar"


class Shards:
    """The shards of a folder. The last `open_at_once` stay open."""

    open_at_once = 64

    def __init__(self, path: str, fs: Any):
        self.folder, self.fs = path, fs
        self._files: dict[int, BinaryIO] = {}
        self._lock = Lock()

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop` of a shard."""
        with self._lock:
            if shard not in self._files:
                if len(self._files) == self.open_at_once:
                    self._files.pop(next(iter(self._files))).close()
                self._files[shard] = open_file(f"{self.folder}/{shard_name(shard)}", self.fs)
            self._files[shard].seek(start)
            return self._files[shard].read(stop - start)

    def close(self) -> None:
        """Close all shards."""
        while self._files:
            self._files.popitem()[1].close()


class TarEvents(Events):
    """Shards in webdataset's layout, with an index: one byte range per event."""

    entry, index_in = "tar", "/index.npy"
    _open = staticmethod(Shards)
    max_gap = 65536  # bytes between two events that cost less than another request

    def _find(self) -> None:
        with open_file(self.index_path, self.fs) as file:
            places = np.load(BytesIO(file.read())).astype(np.int64, casting="equiv")
            self.shard, self.first, self.size = places.reshape(len(self), 3).T.copy()
            if not set(np.diff(self.shard, prepend=0).tolist()) <= {0, 1} or (places >> 40).any():
                raise ValueError("the shards are not consecutive, or a position is too large")

    def path_of(self, index: int) -> str:
        """Return the path of the shard of one event."""
        return f"{self.path}/{shard_name(self.shard[index])}"

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        pulses: dict[int, Pulses] = {}
        for shard, group in groupby(sorted(set(indices)), self.shard.__getitem__):
            for run in neighbors(list(group), self.first, self.max_gap):
                start, stop = self.first[run[0]], self.first[run[-1]] + self.size[run[-1]]
                with stage("read"):
                    content = self.file.read(shard, start, stop)
                with stage("decode"):
                    for index in run:
                        member = content[self.first[index] - start :][: self.size[index]]
                        pulses[index] = np.load(BytesIO(member))
        return [pulses[index].copy() for index in indices]


def _write_shard(events: EventArrays, block: slice, path: Path) -> list[tuple[int, int]]:
    """Write 000123.json and 000123.npy for each event; return position and size of each .npy."""
    import webdataset

    with path.open("wb") as file, webdataset.TarWriter(file, mtime=0) as writer:
        for index in range(block.start, block.stop):
            labels = dict(zip(EVENT_COLUMNS, events.table[index].item(), strict=True))
            pulses = np.asarray(events[index])
            writer.write({"__key__": f"{index:06d}", "json": labels, "npy": pulses})
    with tarfile.open(path) as archive:
        arrays = [member for member in archive if member.name.endswith(".npy")]
    return [(member.offset_data, member.size) for member in arrays]


def _write_index(path: Path, shards: list[list[tuple[int, int]]]) -> None:
    """Write index.npy, int64 (events, 3): shard, position of the .npy in it, size in bytes."""
    places = [(shard, *place) for shard, members in enumerate(shards) for place in members]
    np.save(path / "index.npy", np.array(places, np.int64))


write_tar = Parts("tar", _EVENTS_PER_SHARD, shard_name, _write_shard, _write_index)
