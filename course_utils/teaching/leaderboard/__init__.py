"""A board for a class: who rescued the training of the capstone, and how well."""

from course_utils.teaching.leaderboard.board import Board
from course_utils.teaching.leaderboard.post import post
from course_utils.teaching.leaderboard.result import TARGET_AU, Result
from course_utils.teaching.leaderboard.server import board_address, network_address, serve_board
