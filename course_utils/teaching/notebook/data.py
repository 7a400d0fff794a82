"""Find the data that a notebook reads, and make them where they are not there yet."""

from collections.abc import Callable, Sequence
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.paths import data_root, resolve_size

DATA_SETS = ("events", "images", "volumes")


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
    from data_scripts import make_events, make_images, make_volumes

    makers: dict[str, Callable[[Sequence[str]], int]] = {
        "events": make_events.main,
        "images": make_images.main,
        "volumes": make_volumes.main,
    }
    return makers[name](["--size", resolve_size(size), "--out", str(folder)])


def _folder(name: str, size: str | None) -> Path:
    if name not in DATA_SETS:
        raise CourseError(f"There is no data set {name!r}; choose one of {', '.join(DATA_SETS)}.")
    return data_root() / f"{name}-{resolve_size(size)}"
