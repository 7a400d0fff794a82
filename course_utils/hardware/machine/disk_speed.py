"""Try a disk for less than a second, and say honestly what was measured."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from course_utils.hardware.machine.drop_cache import forget

_PIECE = bytes(range(256)) * 16 * 1024  # 4 MiB
_PIECES = 16
_LIMIT_S = 0.45  # for writing, and once more for reading


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
        cold = forget(file.fileno())
        file.seek(0)
        start, read = time.perf_counter(), 0
        while time.perf_counter() - start < _LIMIT_S and (piece := file.read(len(_PIECE))):
            read += len(piece)
        read_s = time.perf_counter() - start
    return DiskSpeed(written / write_s / 1e6, read / read_s / 1e6, written / 1e6, cold)
