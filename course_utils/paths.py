"""Where the course keeps its data and recordings, and how large the data are."""

import os
import shutil
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from course_utils.errors import CourseError

REPO = Path(__file__).resolve().parents[1]
SIZES = ("S", "M", "L")
DATA_SETS = ("events", "images", "volumes")


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
    return _resolve(None)


def data_path(name: str, size: str | None = None) -> Path:
    """Return the folder of a data set, which is made first where it is not there yet.

    Raises:
        CourseError: the data set is unknown, or could not be made.
    """
    folder = _folder(name, size)
    # The manifest is written last, so its presence means that everything is there.
    if not (folder / "manifest.json").is_file() and make_data(name, size) != 0:
        raise CourseError(
            f"The {name} could not be made; mend what is named above, then run `course data`."
        )
    return folder


def make_data(name: str, size: str | None = None) -> int:
    """Make a data set, or look whether it is whole, in words of its own; return an exit code."""
    folder = _folder(name, size)
    main: Callable[[Sequence[str]], int] = import_module(f"data_scripts.make_{name}").main
    return main(["--size", _resolve(size), "--out", str(folder)])


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


def _folder(name: str, size: str | None) -> Path:
    if name not in DATA_SETS:
        raise CourseError(f"There is no data set {name!r}; choose one of {', '.join(DATA_SETS)}.")
    return data_root() / f"{name}-{_resolve(size)}"


def _resolve(size: str | None) -> str:
    chosen = size or os.environ.get("COURSE_SIZE") or "M"
    if chosen.upper() not in SIZES:
        raise CourseError(f"There is no data size {chosen!r}; choose S, M or L.")
    return chosen.upper()
