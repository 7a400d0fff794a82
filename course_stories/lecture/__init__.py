"""Show a class what a loop does, live or as it was recorded."""

from course_stories.lecture.finding import Finding, load_finding
from course_stories.lecture.show import demos, record, run_and_save, seconds_of, show
