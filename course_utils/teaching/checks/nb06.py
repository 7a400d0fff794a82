"""Checks of notebook 06."""

from course_utils.teaching.checks import nb06_chunks, nb06_integers, nb06_shards  # noqa: F401
