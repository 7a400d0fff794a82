"""Make a file cold again, so that the next read comes from the disk and not from memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


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
        many = "1 file" if self.files == 1 else f"{self.files:,} files"
        what = f"{many}, {self.megabytes:,.1f} MB"
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
    if can_forget():
        for file in files:
            _drop(file)
    return Dropped(can_forget(), len(files), size / 1e6)


def can_forget() -> bool:
    """Tell whether this system can be asked to drop a file from its page cache."""
    return hasattr(os, "posix_fadvise")


def forget(handle: int) -> bool:
    """Have the pages of an open file written and dropped; tell whether that is possible."""
    if not can_forget():
        return False
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def _drop(file: Path) -> None:
    with file.open("rb") as opened:
        forget(opened.fileno())
