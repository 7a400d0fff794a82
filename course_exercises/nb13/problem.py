"""What the capstone hands out, to a learner or to a class."""

from course_stories.capstone import faults_of as faults_of
from course_stories.capstone import hand_out as hand_out
