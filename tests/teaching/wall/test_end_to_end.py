"""A notebook and the real wall: what a learner does is shown."""

from pathlib import Path
from typing import Any

import pytest

import course_utils as cu
from course_utils.teaching.wall import connect, join, kernel, membership
from tests.stories.wall.helpers import running_wall
from tests.teaching.wall.helpers import until

pytestmark = pytest.mark.slow


def take_part(guess: str) -> None:
    """Guess, measure, make a mistake, and raise a hand, like a learner in notebook 02."""
    kernel._button.cache_clear()
    connect("02")
    row: Any = cu.predict("02a", "What share?", unit="%").children[1]
    row.children[0].value = guess
    cu.reveal("02a", 19.0)
    verdict = cu.check("02.4", 2160.0, 1.0, 1.0)
    assert verdict.status == "wrong"
    kernel._button().value = True
    until(lambda: not kernel._sender or not kernel._sender._posts)


def test_wall_shows_what_learners_do(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_wall(tmp_path / "teacher") as wall:
        for number, guess in enumerate(("30", "50 %")):
            monkeypatch.setenv("COURSE_HOME", str(tmp_path / f"learner {number}"))
            monkeypatch.setattr(kernel, "_sender", None)
            membership._new_seat.cache_clear()  # each learner has a process in reality
            join(wall.wall)
            take_part(guess)
        picture, trouble = wall.picture("?uncover=1"), wall.trouble()
    assert (picture["key"], picture["guessed"], picture["measured"]) == ("02a", 2, 2)
    assert picture["pace"]["notebooks"][0][::2] == ["02", 2]
    (exercise,) = trouble["exercises"]
    assert (exercise["exercise"], exercise["wrong"]) == ("02.4", 2)
    ((count, sentence, place),) = exercise["slips"]
    assert count == 2
    assert sentence.startswith("This is the complete bill")
    assert place.startswith("nb02/ex4_count_the_cost:")
    assert [hand[1] for hand in trouble["hands"]] == ["02", "02"]
