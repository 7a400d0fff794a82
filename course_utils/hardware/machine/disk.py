"""The disk: make a file cold, so that the next read comes from it, and try how fast it is."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from keepfed.formatting import plural

_PIECE = bytes(range(256)) * 16 * 1024  # 4 MiB
_PIECES = 16
_LIMIT_S = 0.45  # for writing, and once more for reading


@dataclass(frozen=True)
class Dropped:
    """Whether the system dropped files from its page cache; true or false like a bool."""

    done: bool
    files: int
    megabytes: float  # 10^6 bytes, the length of the files

    def __bool__(self) -> bool:
        return self.done

    def __repr__(self) -> str:
        """Say it in words."""
        what = f"{plural(self.files, 'file')}, {self.megabytes:,.1f} MB"
        if self.done:
            return f"Cold: {what} dropped from the page cache."
        return (
            f"Warm: {what}, still in memory, because this system cannot be asked to drop them; "
            "say 'warm' beside the figure, or read more than the memory holds in between."
        )


def drop_cache(path: str | Path) -> Dropped:
    """Ask the system to forget a file, or every file in a folder; needs no special rights.

    What is not on the disk yet is written first: a page that still waits for that cannot go.

    Returns:
        What was done: false where it is impossible (macOS, Windows).

    Raises:
        FileNotFoundError: there is no such file or folder.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}; name a file or folder that exists.")
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    for file in files:
        with file.open("rb") as opened:
            _forget(opened.fileno())
    return Dropped(can_forget(), len(files), size / 1e6)


def can_forget() -> bool:
    """Tell whether this system can be asked to drop a file from its page cache."""
    return hasattr(os, "posix_fadvise")


def _forget(handle: int) -> None:
    """Have the pages of an open file written and dropped, where that is possible."""
    if can_forget():
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True)
class DiskSpeed:
    """Sequential speeds in 10^6 bytes per second over `megabytes` of data."""

    write_mb_s: float
    read_mb_s: float
    megabytes: float
    cold: bool  # whether the system was told to forget the file before it was read

    def __str__(self) -> str:
        return f"write {self.write_mb_s:,.0f} MB/s, read {self.read_mb_s:,.0f} MB/s"

    @property
    def means(self) -> str:
        """What the figures can and cannot tell."""
        tried = f"{self.megabytes:.0f} MB in one piece"
        if not self.cold:
            return f"{tried}; read back warm, from memory: says nothing about the disk"
        slow = "slow: staging and caching pay here; " if self.read_mb_s < 200 else ""
        return f"{slow}{tried}, read cold; many small files are far slower"


def measure_disk(folder: Path) -> DiskSpeed:
    """Write and read up to 64 MB in a folder.

    Raises:
        OSError: it cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        start, written = time.perf_counter(), 0
        while written < _PIECES * len(_PIECE) and time.perf_counter() - start < _LIMIT_S:
            written += file.write(_PIECE) or 0
            os.fsync(file.fileno())  # else it is the memory that is written
        write_s = time.perf_counter() - start
        _forget(file.fileno())
        file.seek(0)
        start, read = time.perf_counter(), 0
        while time.perf_counter() - start < _LIMIT_S and (piece := file.read(len(_PIECE))):
            read += len(piece)
        read_s = time.perf_counter() - start
    return DiskSpeed(written / write_s / 1e6, read / read_s / 1e6, written / 1e6, can_forget())
