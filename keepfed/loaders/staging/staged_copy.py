"""One staged copy: how it is made whole or not at all, who uses it, and how it goes away.

A copy is built under another name together with its seal, and both appear by one renaming. So what
has its final name is whole, and what a killed run leaves has another name, under which whoever
takes the lock next clears it away.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from keepfed.errors import KeepfedError
from keepfed.loaders.staging.staged_source import Files, Source, SourceFile
from keepfed.words import size

try:
    import fcntl
except ImportError:  # Windows, which does not let go of a file that someone has open
    fcntl = None  # type: ignore[assignment]

_SEAL = ".seal.json"  # no name that a file of somebody has
_KEPT = ".kept"
_PIECE = 4 * 1024 * 1024  # bytes that are copied at once


@dataclass(frozen=True)
class StagedCopy:
    """One copy, and what its seal says of it."""

    folder: Path

    @property
    def key(self) -> str:
        """What stands for its source."""
        return self.folder.name.partition("-")[0]

    @property
    def seal(self) -> dict[str, Any]:
        """Source, name, bytes and files (size, time of change); empty: no whole copy."""
        try:
            seal = json.loads((self.folder / _SEAL).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return seal if isinstance(seal, dict) else {}

    @property
    def path(self) -> Path:
        """The file or folder that was staged."""
        return self.folder / str(self.seal["name"])

    @property
    def is_untouched(self) -> bool:
        """Whether all its files have the sizes and times of change that the seal gives."""
        try:
            top, files = self.path, self.seal["files"].items()
            return all(_stamp(top / name) == sealed for name, sealed in files)
        except (KeyError, OSError):
            return False

    @property
    def in_use(self) -> bool:
        """Whether a process works with it; on Windows only the attempt to remove it tells."""
        if fcntl is None:
            return False
        with suppress(FileNotFoundError), (self.folder / _SEAL).open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def is_kept(self) -> bool:
        """Whether it stays when its last user has gone."""
        return (self.folder / _KEPT).exists()

    def __str__(self) -> str:
        """Say in one line what it is, of what, and whether it is in use."""
        seal = self.seal
        used = "in use" if self.in_use else "not in use"
        return f"{self.path}: {size(seal['bytes'])}, {used}, copied from {seal['source']}"

    def make(self, source: Source, files: Files, *, progress: bool) -> None:
        """Copy these files of a source here, whole or not at all; hold its lock.

        Raises:
            KeepfedError: the source changed meanwhile, or the copy is not what was read.
        """
        building = unfinished(self.folder.parent, self.key)
        building.mkdir(mode=0o700)
        try:
            _fill(building, source, files, progress=progress)
            if source.look() != files:
                raise _changed(source)
            building.rename(self.folder)
        finally:
            delete(building)

    def keep(self) -> None:
        """Let it stay when its last user has gone."""
        (self.folder / _KEPT).touch()

    def remove(self) -> bool:
        """Remove it unless somebody uses it; hold its lock. Return whether it is gone."""
        (self.folder / _KEPT).unlink(missing_ok=True)
        doomed = unfinished(self.folder.parent, self.key)
        delete(doomed)
        if self.in_use:
            return False
        try:
            self.folder.rename(doomed)  # in one step: half a copy never has its final name
        except PermissionError:  # how Windows says that it is in use
            return False
        except FileNotFoundError:
            return True
        delete(doomed)
        return True


class Use:
    """Work with a copy: as long as this object or its process lives, nobody removes the copy."""

    def __init__(self, copy: StagedCopy):
        """Begin; hold the lock of the copy meanwhile."""
        self._handle = os.open(copy.folder / _SEAL, os.O_RDONLY)
        if fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_SH)
        self._close = weakref.finalize(self, os.close, self._handle)

    def end(self) -> None:
        """End it, for workers forked meanwhile too."""
        if self._close.alive and fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._close()


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar without a thread, and without the lock that all forked processes share."""

    monitor_interval = 0


_Bar.set_lock(threading.RLock())


def _fill(folder: Path, source: Source, files: Files, *, progress: bool) -> None:
    """Copy all files into an empty folder, verify them, and seal it."""
    total = sum(file.size for file in files.values())
    targets = {name: folder / source.name / name for name in files}  # top / "" is top
    hidden = None if progress else True  # None: where nobody would see it
    with _Bar(
        total=total, desc=f"staging {source.name}", unit="B", unit_scale=True, disable=hidden
    ) as bar:
        sums = {name: _copy(source, file, targets[name], bar) for name, file in files.items()}
    for name, target in targets.items():
        if _crc32(target) != sums[name]:
            raise KeepfedError(
                f"The copy of {source.name} reads back otherwise than it was written; stage it "
                "again, and if that repeats itself, have the memory of this machine tested."
            )
    stamps = {name: _stamp(target) for name, target in targets.items()}
    seal = {"source": source.identity, "name": source.name, "bytes": total, "files": stamps}
    (folder / _SEAL).write_text(json.dumps(seal), encoding="utf-8")


def _copy(source: Source, file: SourceFile, target: Path, bar: _Bar) -> int:
    """Copy one file and return the CRC-32 of what was read."""
    checksum, size = 0, 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open(file) as original, target.open("xb") as copy:
        for piece in _pieces(original):
            copy.write(piece)
            checksum, size = zlib.crc32(piece, checksum), size + len(piece)
            bar.update(len(piece))
    if size != file.size:
        raise _changed(source)
    return checksum


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb", buffering=0) as file:
        for piece in _pieces(file):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _pieces(file: Any) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(_PIECE))
    while count := file.readinto(buffer):
        yield buffer[:count]


def _changed(source: Source) -> KeepfedError:
    return KeepfedError(
        f"{source.identity} changed while it was copied, so there is no copy; stage it again when "
        "nothing writes to it any more."
    )


def unfinished(place: Path, key: str) -> Path:
    """Return where the copy of a source is built, and from where it is deleted."""
    return place / f".{key}.unfinished"


def delete(path: Path) -> None:
    """Delete a folder, if it is there."""
    if path.exists():
        shutil.rmtree(path)


def _stamp(path: Path) -> list[int]:
    """Return size and time of change of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
