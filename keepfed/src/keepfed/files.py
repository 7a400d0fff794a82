"""Open and replace files safely, and make temporary folders."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from keepfed import formatting
from keepfed.checks import open_regular
from keepfed.errors import FULL, KeepfedError, sentence


@contextmanager
def writing(path: Path, *, elsewhere: str = "choose another folder") -> Iterator[None]:
    """Turn the error of a full disk, or of a folder that cannot be written, into a KeepfedError."""
    try:
        yield
    except OSError as error:
        name = str(error.filename)
        here = name.startswith(str(path.parent)) or str(path).startswith(name)
        if isinstance(error, KeepfedError) or not (error.errno in FULL or here):
            raise
        named = OSError(error.errno, error.strerror, str(path))
        raise KeepfedError(sentence(named, elsewhere=elsewhere)) from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of `path` if the block ends without an error."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with writing(path):
        try:
            with unfinished.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())  # otherwise the rename may reach the disk before the data
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def require_free_space(folder: Path, size: int, *, otherwise: str) -> None:
    """Raise KeepfedError unless `size` bytes are free. `otherwise` is another way: "or ..."."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise KeepfedError(
            f"{folder} has only {formatting.size(free)} free, but {formatting.size(size)} are "
            f"needed. Free some space, {otherwise}."
        )


@contextmanager
def progress_bar(
    title: str, total: int, unit: str, *, show: bool = True
) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on a terminal, and yield a function that counts `unit`s.

    Without tqdm there is no bar. It has no thread, and no lock that forked processes share.
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield int
        return
    kind: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    kind.set_lock(threading.RLock())
    hidden = None if show else True  # None hides the bar if stderr is not a terminal
    with kind(total=total, desc=title, unit=unit, unit_scale=True, disable=hidden) as bar:
        yield bar.update


def temporary_folder(suffix: str = "") -> Path:
    """Make a temporary folder that is deleted when Python exits."""
    own = tempfile.TemporaryDirectory(suffix=suffix, ignore_cleanup_errors=True)
    atexit.register(own.cleanup)
    return Path(own.name)


def open_file(path: str, fs: Any = None) -> BinaryIO:
    """Open a file for reading, on the local disk or on an fsspec file system."""
    if fs is None:
        return open_regular(path)
    file: BinaryIO = fs.open(path)
    return file


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Replace a file atomically, so that a reader or a crash finds the old or the new content.

    `mode` are its permissions, before those of the umask are removed.
    """
    data = content if isinstance(content, bytes) else content.encode()
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.unlink(missing_ok=True)
    # "x" does not follow a link that another user has put there
    with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
    os.replace(partial, path)
