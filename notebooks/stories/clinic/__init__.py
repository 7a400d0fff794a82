"""The blind clinic: six loops, each slow for a reason of its own."""

from notebooks.stories.clinic.clinic import NAMES, Clinic, admit, discharge
from notebooks.stories.clinic.loops import CAUSES
