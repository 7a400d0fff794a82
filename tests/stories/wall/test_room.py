"""The room: which posts it takes, and what it makes of them."""

from typing import Any

import pytest

from course_utils.stories.leaderboard import PostLimits
from course_utils.stories.wall.room import MOST_SEATS, Room, RoomFull
from tests.stories.wall.helpers import COURSE


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def room(clock: Clock) -> Room:
    return Room(COURSE, clock)


def take(room: Room, kind: str, seat: str = "aaaa", **fields: Any) -> None:
    room.take(room.read({"seat": seat, "kind": kind, **fields}))


def test_last_value_of_a_seat_counts_and_repeats_change_nothing(room: Room) -> None:
    take(room, "guess", key="01a", value=40)
    take(room, "guess", key="01a", value=50)
    take(room, "guess", "bbbb", key="01a", value=10)
    take(room, "measured", "bbbb", key="02a", value="it waits")
    assert room.values("guess", "01a") == [50, 10]
    assert room.values("measured", "02a") == ["it waits"]
    assert (room.near("01b"), room.seats) == (["01a", "01b", "02a"], 2)


def test_room_follows_the_key_that_most_seats_guessed_last(room: Room) -> None:
    assert room.followed() == "01a"  # the first one
    for seat in ("aaaa", "bbbb", "cccc"):
        take(room, "guess", seat, key="01a", value=1)
    take(room, "guess", "aaaa", key="01b", value=1)
    assert room.followed() == "01a"
    take(room, "guess", "bbbb", key="01b", value=1)
    assert room.followed() == "01b"


def test_pace_counts_seats_per_notebook_and_passed_checks(room: Room) -> None:
    for seat in ("aaaa", "bbbb"):
        take(room, "at", seat, notebook="01")
        take(room, "verdict", seat, exercise="01.1", status="todo")
    take(room, "at", "bbbb", notebook="02")
    take(room, "verdict", "bbbb", exercise="01.1", status="right")
    assert room.pace() == {
        "notebooks": [["01", "Build", 1], ["02", "See", 1]],
        "passed": [["01.1", 1]],
        "learners": 2,
    }


def test_trouble_counts_mistakes_with_sentences_of_the_course(room: Room) -> None:
    place = "nb01/ex1_pad:41"
    for seat, misconception in (("aaaa", place), ("bbbb", place), ("cccc", "<b>x</b>")):
        fields = {"exercise": "01.1", "status": "wrong", "misconception": misconception}
        take(room, "verdict", seat, **fields)
    (row,) = room.trouble()["exercises"]
    assert (row["exercise"], row["wrong"]) == ("01.1", 3)
    assert row["slips"] == [
        [2, "The batch has no mask.", place],
        [1, "An error in the code, or another mistake", ""],
    ]
    take(room, "verdict", "aaaa", exercise="01.1", status="right", misconception=place)
    assert [slip[0] for slip in room.trouble()["exercises"][0]["slips"]] == [1, 1]


def test_seats_without_a_check_for_ten_minutes_are_counted(room: Room, clock: Clock) -> None:
    for seat in ("aaaa", "bbbb"):
        take(room, "at", seat, notebook="01")
    take(room, "guess", "phone", key="01a", value=1)
    take(room, "verdict", exercise="01.1", status="todo")
    clock.now = 599
    take(room, "verdict", exercise="01.1", status="todo")  # a repeat is a sign of life
    assert room.trouble()["idle"] == []
    clock.now = 600
    assert room.trouble()["idle"] == [("01", 1)]


def test_hands_are_listed_longest_first(room: Room, clock: Clock) -> None:
    for seat in ("aaaa", "bbbb", "cccc"):
        take(room, "hand", seat, up=True)
        clock.now += 60
    take(room, "hand", "aaaa", up=False)
    take(room, "hand", "bbbb", up=True)  # a repeat keeps its place
    assert room.trouble()["hands"] == [["bbbb", "", 120], ["cccc", "", 60]]


def test_room_has_a_largest_number_of_seats(room: Room) -> None:
    letters = "abcdefghjk"
    names = ["".join(letters[int(digit)] for digit in f"{number:04}") for number in range(501)]
    for name in names[:MOST_SEATS]:
        take(room, "hand", name, up=True)
    with pytest.raises(RoomFull):
        take(room, "hand", names[-1], up=True)
    take(room, "hand", names[0], up=False)


def test_posts_of_one_client_are_limited(clock: Clock) -> None:
    limits = PostLimits(burst=300, a_second=30, clock=clock)
    assert [limits.refusal("a", "") for _ in range(10_000)].count("") == 300
    assert limits.refusal("b", "") == ""
    clock.now = 1.5
    assert [limits.refusal("a", "") for _ in range(100)].count("") == 45
    clock.now = 1000
    assert [limits.refusal("a", "") for _ in range(1000)].count("") == 300
