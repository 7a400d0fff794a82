"""What the capstone hands out, to a learner or to a class."""

from notebooks.stories.capstone import faults_of as faults_of
from notebooks.stories.capstone import hand_out as hand_out
