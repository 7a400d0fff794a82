"""A leaderboard for a class, with the results of the capstone."""

from course_utils.stories.leaderboard.board import Board
from course_utils.stories.leaderboard.limits import PostLimits
from course_utils.stories.leaderboard.post import post
from course_utils.stories.leaderboard.result import TARGET_AU, Result
