"""The wall of a class: its guesses, its pace and its mistakes on one page."""

from course_stories.wall.questions import deck_question
from course_stories.wall.server import WallAddresses, network_address, serve_wall
