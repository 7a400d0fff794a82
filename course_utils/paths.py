"""Where the course keeps its data and recordings, and how large the data are."""

import os
import shutil
from pathlib import Path

from course_utils.errors import CourseError

REPO = Path(__file__).resolve().parents[1]
SIZES = ("S", "M", "L")


def recording(name: str) -> Path:
    """Return a file in `recordings`, such as a trace of a tool that is not installed here.

    Raises:
        CourseError: there is no such recording.
    """
    path = REPO / "recordings" / name
    if not path.is_file():
        there = ", ".join(sorted(file.name for file in path.parent.glob("[!.]*")))
        raise CourseError(f"There is no recording {name!r}; choose one of: {there}.")
    return path


def data_root() -> Path:
    """Return the folder of all data sets: `$COURSE_DATA`, or `data` in the project."""
    return Path(os.environ.get("COURSE_DATA") or REPO / "data").expanduser().resolve()


def size() -> str:
    """Return the size of the data in use: `$COURSE_SIZE`, or M."""
    return resolve_size(None)


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


def resolve_size(size: str | None) -> str:
    """Return `size`, or the one in use, as a letter; raise CourseError if there is no such."""
    chosen = size or os.environ.get("COURSE_SIZE") or "M"
    if chosen.upper() not in SIZES:
        raise CourseError(f"There is no data size {chosen!r}; choose S, M or L.")
    return chosen.upper()
