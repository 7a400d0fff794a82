"""Copy the files of a source, and read back what was copied."""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from course_utils.errors import CourseError
from course_utils.loading.cache.staged_copy import SEAL, stamp
from course_utils.loading.cache.staged_source import Source

PIECE = 4 * 1024 * 1024  # bytes that are copied at once


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar without the lock that tqdm shares with all forked processes: one killed keeps it."""

    monitor_interval = 0


_Bar.set_lock(threading.RLock())


def fill(folder: Path, source: Source, *, reserve: bool, progress: bool) -> None:
    """Copy all files into an empty folder, verify them, and seal it."""
    top = folder / source.name
    targets = {name: top / name for name in source.files}  # top / "" is top
    for name, target in targets.items():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(target, source.files[name].size if reserve else 0)
    with _Bar(
        total=source.bytes, desc=f"staging {source.name}", unit="B", unit_scale=True,
        disable=None if progress else True,
    ) as bar:  # fmt: skip
        sums = {name: _copy(source, name, target, bar) for name, target in targets.items()}
    for name, target in targets.items():
        if _crc32(target) != sums[name]:
            raise CourseError(
                f"The copy of {source.name} reads back otherwise than it was written; stage it "
                "again, and if that repeats itself, have the memory of this machine tested."
            )
    seal = {
        "source": source.identity,
        "name": source.name,
        "bytes": source.bytes,
        "files": {name: [*stamp(target), sums[name]] for name, target in targets.items()},
    }
    _create(folder / SEAL, 0)
    (folder / SEAL).write_text(json.dumps(seal), encoding="utf-8")


def _create(target: Path, size: int) -> None:
    """Make a file; in memory, take all its room at once, so that two runs do not share one rest."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
    finally:
        os.close(handle)


def _copy(source: Source, name: str, target: Path, bar: _Bar) -> int:
    """Copy one file and return the CRC-32 of what was read."""
    checksum, size = 0, 0
    with source.open(name) as file, target.open("r+b") as copy:
        for piece in _pieces(file):
            copy.write(piece)
            checksum, size = zlib.crc32(piece, checksum), size + len(piece)
            bar.update(len(piece))
    if size != source.files[name].size:
        raise changed(source)
    return checksum


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb", buffering=0) as file:
        for piece in _pieces(file):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _pieces(file: Any) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(PIECE))
    while count := file.readinto(buffer):
        yield buffer[:count]


def changed(source: Source) -> CourseError:
    """Return what to raise if a source was written to meanwhile."""
    return CourseError(
        f"{source.identity} changed while it was copied, so there is no copy; stage it again when "
        "nothing writes to it any more."
    )
