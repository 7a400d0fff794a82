import errno

import pytest

from course_utils.errors import CourseError, sentence


def test_an_expected_error_is_said_as_it_is() -> None:
    assert sentence(CourseError("No such size; choose S.")) == "No such size; choose S."


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "The disk is full at /x; free some space or pay, and run again."),
        (errno.EACCES, "Writing to /x is not allowed; pay, and run again."),
        (errno.EROFS, "Writing to /x is not allowed; pay, and run again."),
        (errno.EIO, "/x: broken; mend that and run again."),
    ],
)
def test_an_error_of_the_system_becomes_one_sentence_with_the_next_step(
    number: int, said: str
) -> None:
    assert sentence(OSError(number, "broken", "/x"), elsewhere="pay") == said
