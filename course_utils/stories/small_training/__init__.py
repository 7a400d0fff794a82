"""A small network that learns energies, to test the order of events and restarts."""

from course_utils.stories.small_training.orders import EPOCHS, held_out_loss, light_and_energy
from course_utils.stories.small_training.restarts import Training
