"""Errors of the course."""

from keepfed.errors import KeepfedError


class CourseError(KeepfedError):
    """Report an expected problem of the course in one sentence that ends with the next step."""
