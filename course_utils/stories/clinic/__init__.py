"""The blind clinic: six loops that are slow for different reasons."""

from course_utils.stories.clinic.clinic import NAMES, Clinic, admit, discharge
from course_utils.stories.clinic.loops import CAUSES
