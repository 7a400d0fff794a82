"""Where the course keeps what learners read, what they make, and the sizes of its data.

What is read lies in the checkout, or comes with the installed package. What is written lies in one
folder, `course_home()`, so that many users can share one installation that they cannot change.
"""

import os
from functools import cache
from pathlib import Path

from course_utils.errors import CourseError
from keepfed.files import temporary_folder

REPO = Path(__file__).resolve().parents[1]  # where our packages stand
_SHIPPED = Path(__file__).with_name("shipped")  # only in an installed package; see setup.py
SIZES = ("S", "M", "L")
SCRATCH = ".course_cells"


def shipped(name: str) -> Path:
    """Return a file or folder that comes with the course, such as "notebooks"; it is only read."""
    return (REPO if is_checkout() else _SHIPPED) / name


def is_checkout() -> bool:
    """Return whether the course runs from its repository."""
    return not _SHIPPED.is_dir()


def course_home() -> Path:
    """Return the folder of notebooks, data and Jupyter's state of this user.

    It is `$COURSE_HOME`; else the checkout, if it can be written; else a folder in the home
    directory.
    """
    if chosen := os.environ.get("COURSE_HOME"):
        return Path(chosen).expanduser().resolve()
    own = is_checkout() and os.access(REPO, os.W_OK)
    return REPO if own else Path.home() / "fast-data-loaders"


def recording(name: str) -> Path:
    """Return a file in `recordings`, such as a trace of a tool that is not installed here.

    Raises:
        CourseError: there is no such recording.
    """
    path = shipped("recordings") / name
    if not path.is_file():
        there = ", ".join(sorted(file.name for file in path.parent.glob("[!.]*")))
        raise CourseError(f"There is no recording {name!r}; choose one of: {there}.")
    return path


def data_root() -> Path:
    """Return the folder of all data sets: `$COURSE_DATA`, or `data` in `course_home()`."""
    return Path(os.environ.get("COURSE_DATA") or course_home() / "data").expanduser().resolve()


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
        return temporary_folder(SCRATCH)
    return folder
