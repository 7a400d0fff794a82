"""Where the course keeps data, recordings and what a notebook leaves; its version and sizes."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from course_utils.errors import CourseError

__version__ = "0.1.0"  # `notebooks/build.py` writes it into every notebook
REPO = Path(__file__).resolve().parents[1]
SIZES = ("S", "M", "L")
SCRATCH = ".course_cells"


def recording(name: str) -> Path:
    """Return a file in `recordings`, such as a trace of a tool that is not installed here.

    Raises:
        CourseError: there is no such recording.
    """
    path = REPO / "recordings" / name
    if not path.parent.is_dir():
        raise CourseError(
            f"There are no recordings in {path.parent}; install the course from its checkout with "
            "`pip install -e .`."
        )
    if not path.is_file():
        there = ", ".join(sorted(file.name for file in path.parent.glob("[!.]*")))
        raise CourseError(f"There is no recording {name!r}; choose one of: {there}.")
    return path


def data_root() -> Path:
    """Return the folder of all data sets: `$COURSE_DATA`, or `data` in the project."""
    return Path(os.environ.get("COURSE_DATA") or REPO / "data").expanduser().resolve()


def need_room(folder: Path, size: int, *, otherwise: str) -> None:
    """Make sure that `size` bytes are free in `folder`.

    Raises:
        CourseError: they are not; free some space, or what `otherwise` says.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise CourseError(
            f"{folder} has {free / 1e6:,.0f} MB free and {size / 1e6:,.0f} MB are needed; free "
            f"some space, {otherwise}."
        )


def data_size(size: str | None = None) -> str:
    """Return `size`, or that of the data in use (`$COURSE_SIZE`, or M), as a letter.

    Raises:
        CourseError: there is no such size.
    """
    chosen = size or os.environ.get("COURSE_SIZE") or "M"
    if chosen.upper() not in SIZES:
        raise CourseError(f"There is no data size {chosen!r}; choose S, M or L.")
    return chosen.upper()


@cache
def scratch_folder() -> Path:
    """Return the folder of what must outlive a cell, such as its modules and the predictions.

    It lies beside the notebook; where nothing can be written there, it is a temporary one.
    """
    folder = Path.cwd() / SCRATCH
    try:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", "utf-8")
    except OSError:
        return folder_for_now(SCRATCH)
    return folder


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
