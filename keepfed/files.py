"""Read and write files so that an error, a kill or a full disk loses nothing."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from keepfed.errors import KeepfedError


def need_room(folder: Path, size: int, *, otherwise: str) -> None:
    """Make sure that `size` bytes are free in `folder`.

    Raises:
        KeepfedError: they are not; free some space, or what `otherwise` says.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise KeepfedError(
            f"{folder} has {free / 1e6:,.0f} MB free and {size / 1e6:,.0f} MB are needed; free "
            f"some space, {otherwise}."
        )


def folder_for_now(suffix: str = "") -> Path:
    """Make a temporary folder that goes when Python ends."""
    own = tempfile.TemporaryDirectory(suffix=suffix, ignore_cleanup_errors=True)
    atexit.register(own.cleanup)
    return Path(own.name)


def open_file(path: str, fs: Any = None) -> BinaryIO:
    """Open a file for reading, on the disk or on a file system of fsspec."""
    if fs is None:
        return Path(path).open("rb")
    file: BinaryIO = fs.open(path)
    return file


def exists(path: str, fs: Any = None) -> bool:
    """Tell whether there is such a file or folder, on the disk or on a file system of fsspec."""
    return Path(path).exists() if fs is None else bool(fs.exists(path))


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, a kill or a full disk finds the old or the new one whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.replace(partial, path)
