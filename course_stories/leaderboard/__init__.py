"""A leaderboard for a class, with the results of the capstone."""

from course_stories.leaderboard.board import Board
from course_stories.leaderboard.post import post
from course_stories.leaderboard.result import TARGET_AU, Result
from course_stories.leaderboard.server import board_address, network_address, serve_board
