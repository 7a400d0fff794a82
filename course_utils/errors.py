"""Exceptions of the course."""

from keepfed.errors import KeepfedError


class CourseError(KeepfedError):
    """An expected problem, reported in one sentence that ends with the next step."""
