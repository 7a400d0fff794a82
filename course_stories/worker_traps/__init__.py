"""Traps of workers, before and after they are mended, each in a process that may break."""

from course_stories.worker_traps.showing import compare, show
