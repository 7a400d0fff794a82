"""A board for a class: who rescued the training of the capstone, and how well."""

from course_stories.leaderboard.board import Board
from course_stories.leaderboard.post import post
from course_stories.leaderboard.result import TARGET_AU, Result
from course_stories.leaderboard.server import board_address, network_address, serve_board
