"""Demos of training loops for lectures, live or recorded."""

from course_utils.stories.lecture.finding import Finding, load_finding
from course_utils.stories.lecture.show import demos, record, run_and_save, seconds_of, show
