"""Exceptions of the course."""

from keepfed.errors import KeepfedError

INSTALL_AGAIN = (
    'run `make lab` or `pip install -e keepfed -e ".[course]"` in the folder of the course'
)


class CourseError(KeepfedError):
    """An expected problem, reported in one sentence that ends with the next step."""
