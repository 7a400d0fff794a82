"""One staged copy: its seal, who uses it, and how it goes away.

A copy is built under another name together with its seal, and both appear by one renaming. So what
has its final name is whole, and what a killed run leaves has another name.
"""

from __future__ import annotations

import json
import os
import shutil
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows, which does not let go of a file that someone has open
    fcntl = None  # type: ignore[assignment]

SEAL = ".seal.json"  # no name that a file of somebody has
_LAST_REMOVES = ".last-user-removes"


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
        """Source, name, bytes and files (size, time of change, CRC-32); empty: no whole copy."""
        try:
            seal = json.loads((self.folder / SEAL).read_text(encoding="utf-8"))
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
        seal = self.seal
        if not seal:
            return False
        top = self.folder / str(seal["name"])
        try:
            files = seal["files"].items()
            return all(list(stamp(top / name)) == sealed[:2] for name, sealed in files)
        except OSError:
            return False

    @property
    def in_use(self) -> bool:
        """Whether a process works with it; on Windows only the attempt to remove it tells."""
        if fcntl is None:
            return False
        with suppress(FileNotFoundError), (self.folder / SEAL).open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def is_doomed(self) -> bool:
        """Whether its last user shall remove it."""
        return (self.folder / _LAST_REMOVES).exists()

    def __str__(self) -> str:
        """Say in one line what it is, of what, and whether it is in use."""
        seal = self.seal
        used = "in use" if self.in_use else "not in use"
        return f"{self.path}: {seal['bytes'] / 1e6:,.1f} MB, {used}, copied from {seal['source']}"

    def keep(self) -> None:
        """Let it stay when its last user has gone."""
        (self.folder / _LAST_REMOVES).unlink(missing_ok=True)

    def remove(self) -> bool:
        """Remove it, or leave that to its last user; hold its lock. Return whether it is gone."""
        doomed = self.folder.with_name(f".{self.key}.unfinished")
        delete(doomed)
        if not self.in_use:
            with suppress(PermissionError):  # how Windows says that it is in use
                self.folder.rename(doomed)  # in one step: half a copy never has its final name
                delete(doomed)
                return True
        (self.folder / _LAST_REMOVES).touch()
        return False


class Use:
    """Work with a copy: as long as this object or its process lives, nobody removes the copy."""

    def __init__(self, copy: StagedCopy):
        """Begin; hold the lock of the copy meanwhile."""
        self._handle = os.open(copy.folder / SEAL, os.O_RDONLY)
        if fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_SH)
        self._close = weakref.finalize(self, os.close, self._handle)

    def end(self) -> None:
        """End it, for workers forked meanwhile too."""
        if self._close.alive and fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._close()


def stamp(path: Path) -> tuple[int, int]:
    """Return size and time of change of a file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def delete(path: Path) -> None:
    """Delete a folder, if it is there."""
    if path.exists():
        shutil.rmtree(path)
