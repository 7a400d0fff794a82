"""Functions that give the script to learners, and list its faults for teachers."""

from course_utils.stories.capstone import faults_of as faults_of
from course_utils.stories.capstone import hand_out as hand_out
