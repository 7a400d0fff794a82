"""Post a result to the leaderboard of a class."""

from __future__ import annotations

from course_utils.errors import CourseError
from course_utils.stories.leaderboard.result import Result
from course_utils.teaching.wall import parse_address, request

_PATIENCE_S = 10


def post(name: str, result: Result | None, board: str) -> str:
    """Post your result under a name of your choice, and return the board's answer.

    Args:
        name: Any name. The board shows it to the class.
        result: The result of the check. The function sends nothing else about you.
        board: The address of the board, including its token.
    """
    if not board.strip():
        return "Not posted. The address of the board is empty. Enter the address of your class."
    if result is None:
        return "Not posted. You have no result yet. Run the check of your script first."
    try:
        wall = parse_address(board)
    except CourseError:
        return "Not posted. An address must look like http://10.0.0.7:8765/?token=abc."
    fields = {"name": name, **result.to_json()}
    status, said = request(wall, "results", fields, patience=_PATIENCE_S)
    if status == 0:
        place = wall.address.partition("//")[2]
        said = f"There is no answer from {place}. Check that the board is running and that you are "
        said += "in the same network."
    return said if status == 200 else f"Not posted. {said}"
