"""Open and replace files safely, and make temporary folders."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from keepfed import formatting
from keepfed.errors import KeepfedError, is_disk_full, sentence

T = TypeVar("T")


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn the error of a full or forbidden disk into a sentence that names `path`.

    Raises:
        KeepfedError: If the disk or quota is full, or writing is not allowed.
    """
    try:
        yield
    except OSError as error:
        named = OSError(error.errno, error.strerror, str(path))
        here = str(error.filename).startswith(str(path.parent))
        if not (is_disk_full(error) or (here and isinstance(error, PermissionError))):
            raise
        raise KeepfedError(sentence(named, elsewhere="choose another folder")) from error


def require_free_space(folder: Path, size: int, *, otherwise: str) -> None:
    """Check that `size` bytes are free in `folder`.

    Args:
        folder: An existing folder.
        size: Required bytes.
        otherwise: An alternative to freeing space, starting with "or".

    Raises:
        KeepfedError: If there is less free space.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise KeepfedError(
            f"{folder} has only {formatting.size(free)} free, but {formatting.size(size)} are "
            f"needed. Free some space, {otherwise}."
        )


def progress(items: Iterable[T], title: str) -> Iterable[T]:
    """Return `items`, with a progress bar on a terminal if tqdm is installed."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return items
    return tqdm(items, title, disable=None)


def temporary_folder(suffix: str = "") -> Path:
    """Make a temporary folder that is deleted when Python exits."""
    own = tempfile.TemporaryDirectory(suffix=suffix, ignore_cleanup_errors=True)
    atexit.register(own.cleanup)
    return Path(own.name)


def open_file(path: str, fs: Any = None) -> BinaryIO:
    """Open a file for reading, on the local disk or on an fsspec file system."""
    if fs is None:
        return Path(path).open("rb")
    file: BinaryIO = fs.open(path)
    return file


def exists(path: str, fs: Any = None) -> bool:
    """Return whether a file or folder exists, on the local disk or on an fsspec file system."""
    return Path(path).exists() if fs is None else bool(fs.exists(path))


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Replace a file atomically, so that a reader or a crash finds the old or the new content.

    Args:
        path: The file.
        content: Its new content.
        mode: Its permissions, before those of the umask are removed.
    """
    data = content if isinstance(content, bytes) else content.encode()
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.unlink(missing_ok=True)
    # "x" does not follow a link that another user has put there
    with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
    os.replace(partial, path)
