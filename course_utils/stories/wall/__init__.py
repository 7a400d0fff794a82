"""The wall of a class: its guesses, its pace and its mistakes on one page."""

from course_utils.stories.wall.questions import deck_question
from course_utils.stories.wall.server import WallAddresses, network_address, serve_wall
