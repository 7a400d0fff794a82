"""A format of many files: each part can be written by itself, in any order and by any process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.loading.events.npy import EventArrays


@dataclass(frozen=True)
class Parts:
    """Write events as a folder of parts: here all of them, one after the other.

    Whoever shares the work calls `write` for each part, wherever that is, and then `finish`.
    """

    title: str
    size: int  # events in a part; the last one may have fewer
    name: Callable[[int], str]  # of the file or folder that a part is, by its number
    write: Callable[[EventArrays, slice, Path], Any]  # one part; returns what `finish` has to know
    finish: Callable[[Path, list[Any]], None] | None = None  # writes what needs all parts first

    def __call__(self, events: EventArrays, path: Path) -> None:
        """Write the whole format into the folder `path`, which is not there yet."""
        path.mkdir()
        found = []
        for number, (block, _) in enumerate(events.blocks(self.title, self.size)):
            found.append(self.write(events, block, path / self.name(number)))
        if self.finish:
            self.finish(path, found)

    def slices(self, events: EventArrays) -> list[slice]:
        """Return which events each part holds."""
        firsts = range(0, len(events), self.size)
        return [slice(first, min(first + self.size, len(events))) for first in firsts]
