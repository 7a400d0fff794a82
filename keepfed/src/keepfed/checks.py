"""Check what would be read wrongly without an error, or never end.

Examples are a pipe in place of a file, and a file that changed while it was in use.
`keepfed.reading` translates the errors that libraries do raise.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from keepfed.errors import unreadable

Path = str | os.PathLike[str]
Stamp = tuple[int, int]  # bytes, and time of modification in nanoseconds


def open_regular(path: Path) -> BinaryIO:
    """Open a local file, or raise ReadError if it is a pipe, a device or a socket."""
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    try:
        _require_regular(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def _open_at_once(path: str, flags: int) -> int:
    """Open a pipe without waiting for a process that writes to it. Files open as usual."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def stamp(path: Path) -> Stamp:
    """Return what changes if a file is modified, or raise ReadError if it is none."""
    status = os.stat(path)
    _require_regular(path, status)
    return status.st_size, status.st_mtime_ns


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        problem = "it is a device, a pipe or a socket, so it has no content of its own"
        raise unreadable(path, problem, "Remove it, or give another path")


def require_unchanged(path: Path, before: Stamp) -> None:
    """Check that a file was not modified or replaced. A mapped file that shrinks kills the process.

    An open file outlives its name, so a file that was removed is no problem.
    """
    with suppress(FileNotFoundError):
        if stamp(path) != before:
            problem = "it was modified or replaced after it was opened"
            raise unreadable(path, problem, "Open it again, and write to it only between trainings")


def files_below(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the paths of all files below a folder, also of those behind links.

    Raises ReadError if a link leads into one of the folders `above`, which would never end.
    """
    real = os.path.join(os.path.realpath(folder), "")
    if any(path.startswith(real) for path in above):
        raise unreadable(folder, "it is a link to a folder that contains it", "Remove the link")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from files_below(entry.path, (*above, real))
            else:
                yield entry.path


def position(index: int, length: int, name: object) -> int:
    """Return `index` counted from the start, or raise an IndexError that names the dataset."""
    try:
        return range(length)[index]
    except IndexError:
        raise IndexError(
            f"There is no sample {index} in {name}, which has {length:,} samples. Check the "
            "length that the sampler uses."
        ) from None
