"""The learner's side of a class's wall: join it, and send guesses and check results to it."""

from course_utils.teaching.wall.kernel import announce, connect, send
from course_utils.teaching.wall.membership import (
    Wall,
    join,
    joined,
    leave,
    new_token,
    parse_address,
)
from course_utils.teaching.wall.misconceptions import locate, sentences
from course_utils.teaching.wall.sender import Sender, deliver, request
