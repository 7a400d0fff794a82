"""A small network that learns energies: what the order of events does to it, and what a kill."""

from course_stories.small_training.orders import EPOCHS, held_out_loss, light_and_energy
from course_stories.small_training.restarts import Training, draw_losses
