"""Folders for course files and learner files, and the sizes of the data sets.

Files to read are in the checkout or in the installed package. Files to write are in one folder,
`course_home()`, so that many users can share one read-only installation.
"""

import os
from functools import cache
from pathlib import Path

from course_utils.errors import CourseError
from keepfed.files import temporary_folder

REPO = Path(__file__).resolve().parents[1]  # folder that contains our packages
_SHIPPED = Path(__file__).with_name("shipped")  # only in an installed package; see setup.py
SIZES = ("S", "M", "L")
SCRATCH = ".course_cells"


def shipped(name: str) -> Path:
    """Return a read-only file or folder of the course, such as "notebooks"."""
    return (REPO if is_checkout() else _SHIPPED) / name


def is_checkout() -> bool:
    """Return whether the course runs from its repository."""
    return not _SHIPPED.is_dir()


def course_home() -> Path:
    """Return the folder for this user's notebooks, data and Jupyter state.

    It is `$COURSE_HOME` if set, otherwise the checkout if it is writable, otherwise a folder in the
    home directory.
    """
    if chosen := os.environ.get("COURSE_HOME"):
        return Path(chosen).expanduser().resolve()
    own = is_checkout() and os.access(REPO, os.W_OK)
    return REPO if own else Path.home() / "fast-data-loaders"


def recording(name: str) -> Path:
    """Return a file in `notebooks/recordings`, such as the trace of a tool that is not here.

    Raises:
        CourseError: If the recording does not exist.
    """
    path = shipped("notebooks/recordings") / name
    if not path.is_file():
        there = ", ".join(sorted(file.name for file in path.parent.glob("[!.]*")))
        raise CourseError(f"There is no recording {name!r}. Choose one of: {there}.")
    return path


def data_root() -> Path:
    """Return the folder of all data sets: `$COURSE_DATA`, or `data` in `course_home()`."""
    return Path(os.environ.get("COURSE_DATA") or course_home() / "data").expanduser().resolve()


def data_size(size: str | None = None) -> str:
    """Return `size`, or the size of the data in use, as a letter.

    That is `$COURSE_SIZE`, or the size in which most data sets exist, or M if there are none.

    Raises:
        CourseError: If the size does not exist.
    """
    chosen = size or os.environ.get("COURSE_SIZE") or max("MSL", key=_data_sets)
    if chosen.upper() not in SIZES:
        raise CourseError(f"There is no data size {chosen!r}. Choose S, M or L.")
    return chosen.upper()


def _data_sets(size: str) -> int:
    return len([*data_root().glob(f"*-{size}/manifest.json")])


@cache
def scratch_folder() -> Path:
    """Return the folder for files that outlive a cell, such as its modules and the predictions.

    It is next to the notebook, or a temporary folder if that location is read-only.
    """
    folder = Path.cwd() / SCRATCH
    try:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", "utf-8")
    except OSError:
        return temporary_folder(SCRATCH)
    return folder
