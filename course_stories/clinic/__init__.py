"""The blind clinic: six loops that are slow for different reasons."""

from course_stories.clinic.clinic import NAMES, Clinic, admit, discharge
from course_stories.clinic.loops import CAUSES
