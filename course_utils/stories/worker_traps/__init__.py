"""Common faults with workers and their fixes, each shown in a subprocess that may crash."""

from course_utils.stories.worker_traps.showing import compare, show
