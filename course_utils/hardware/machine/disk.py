"""Drop files from the page cache, and measure the speed of the disk."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from keepfed.formatting import plural

_PIECE = bytes(range(256)) * 16 * 1024  # 4 MiB
_PIECES = 16
_LIMIT_S = 0.45  # for writing, and again for reading


@dataclass(frozen=True)
class Dropped:
    """Whether files were dropped from the page cache; true or false like a bool."""

    done: bool
    files: int
    megabytes: float  # total size of the files, 10^6 bytes

    def __bool__(self) -> bool:
        return self.done

    def __repr__(self) -> str:
        """Return the result as a sentence."""
        what = f"{plural(self.files, 'file')}, {self.megabytes:,.1f} MB"
        if self.done:
            return f"Cold: {what} dropped from the page cache."
        return (
            f"Warm: {what} still in memory, because this system cannot drop files from the cache. "
            "Label the figure 'warm', or first read more data than the memory holds."
        )


def drop_cache(path: str | Path) -> Dropped:
    """Drop a file, or every file in a folder, from the page cache; needs no special rights.

    Unwritten data are written to disk first, because only clean pages can be dropped.

    Returns:
        Whether the files were dropped: false on systems without this call (macOS, Windows).

    Raises:
        FileNotFoundError: If `path` does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Pass an existing file or folder.")
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    for file in files:
        with file.open("rb") as opened:
            _drop(opened.fileno())
    return Dropped(can_drop_cache(), len(files), size / 1e6)


def can_drop_cache() -> bool:
    """Return whether this system can drop a file from its page cache."""
    return hasattr(os, "posix_fadvise")


def _drop(handle: int) -> None:
    """Write the pages of an open file to disk and drop them, if the system can."""
    if can_drop_cache():
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True)
class DiskSpeed:
    """Sequential read and write speed, measured over `megabytes` of data, in 10^6 bytes/s."""

    write_mb_s: float
    read_mb_s: float
    megabytes: float
    cold: bool  # whether the file was dropped from the cache before reading

    def __str__(self) -> str:
        return f"write {self.write_mb_s:,.0f} MB/s, read {self.read_mb_s:,.0f} MB/s"

    @property
    def means(self) -> str:
        """Explanation of the figures and their limits."""
        tried = f"{self.megabytes:.0f} MB in one file"
        if not self.cold:
            return f"{tried} read back from memory, so the speed of the disk is unknown"
        slow = "slow, so staging and caching help here; " if self.read_mb_s < 200 else ""
        return f"{slow}{tried}, read cold; many small files are much slower"


def measure_disk(folder: Path) -> DiskSpeed:
    """Measure the disk of a folder by writing and reading up to 64 MB.

    Raises:
        OSError: If the folder is not writable.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        start, written = time.perf_counter(), 0
        while written < _PIECES * len(_PIECE) and time.perf_counter() - start < _LIMIT_S:
            written += file.write(_PIECE) or 0
            os.fsync(file.fileno())  # without it, the data may still be in memory
        write_s = time.perf_counter() - start
        _drop(file.fileno())
        file.seek(0)
        start, read = time.perf_counter(), 0
        while time.perf_counter() - start < _LIMIT_S and (piece := file.read(len(_PIECE))):
            read += len(piece)
        read_s = time.perf_counter() - start
    return DiskSpeed(written / write_s / 1e6, read / read_s / 1e6, written / 1e6, can_drop_cache())
