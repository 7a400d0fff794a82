"""The blind clinic: six loops, each slow for a reason of its own."""

from course_stories.clinic.clinic import NAMES, Clinic, admit, discharge
from course_stories.clinic.loops import CAUSES
