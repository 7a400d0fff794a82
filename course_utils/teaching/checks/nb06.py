"""Checks of notebook 06."""

from course_utils.teaching.checks import (  # noqa: F401  # each registers its own
    nb06_cases,
    nb06_chunks,
    nb06_integers,
    nb06_shards,
)
