"""A leaderboard for a class, with the results of the capstone."""

from course_stories.leaderboard.board import Board
from course_stories.leaderboard.limits import PostLimits
from course_stories.leaderboard.post import post
from course_stories.leaderboard.result import TARGET_AU, Result
