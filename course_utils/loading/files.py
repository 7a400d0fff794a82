"""Open files alike on the disk and on a file system of fsspec."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO


def open_file(path: str, fs: Any = None) -> BinaryIO:
    """Open a file for reading, on the disk or on a file system of fsspec."""
    if fs is None:
        return Path(path).open("rb")
    file: BinaryIO = fs.open(path)
    return file


def exists(path: str, fs: Any = None) -> bool:
    """Tell whether there is such a file or folder."""
    return Path(path).exists() if fs is None else bool(fs.exists(path))
