"""The posts of a class: the last value of each seat for each kind and key."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from course_utils.stories.wall.questions import Course

MOST_SEATS = 500
DESK = "desk"  # seat of the teacher, who may measure for the class
_SEAT = re.compile(r"[a-z2-9]{4,16}")
_LARGEST = 1e15
_IDLE_S = 600
_NO_PLACE = "An error in the code, or another mistake"


class RoomFull(Exception):
    """The room has the maximum number of seats."""


@dataclass
class Post:
    """A valid post, without unknown fields."""

    seat: str
    kind: str
    key: str  # key of the question or exercise, or ""
    fields: dict[str, Any]
    time: float = 0.0


class Room:
    """The posts of a class, in memory."""

    def __init__(self, course: Course, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty room."""
        self.course = course
        self._clock = clock
        self._posts = defaultdict[tuple[str, str], dict[str, Post]](dict)
        self._last_key: dict[str, str] = {}  # key that each seat guessed last
        self._came: dict[str, float] = {}

    def read(self, given: Mapping[str, Any]) -> Post:
        """Return a valid post.

        Raises:
            ValueError: If the post is not valid. The message gives the reason.
        """
        course, seat, kind = self.course, given.get("seat"), given.get("kind")
        if not isinstance(seat, str) or not _SEAT.fullmatch(seat):
            raise ValueError("'seat' must have 4 to 16 characters of a-z and 2-9.")
        match kind:
            case "at":
                return Post(seat, kind, "", _field(given, "notebook", course.notebooks))
            case "hand":
                if not isinstance(given.get("up"), bool):
                    raise ValueError("'up' must be true or false.")
                return Post(seat, kind, "", {"up": given["up"]})
            case "guess" | "measured":
                key = _field(given, "key", course.questions)
                return Post(seat, kind, key["key"], key | self._value(given, kind))
            case "verdict":
                fields = _field(given, "exercise", course.exercises)
                fields |= _field(given, "status", ("right", "wrong", "todo"))
                place = given.get("misconception")
                # a learner may have another version of the course, with other lines
                known = place if isinstance(place, str) and place in course.mistakes else ""
                return Post(seat, kind, fields["exercise"], fields | {"misconception": known})
        raise ValueError("'kind' must be at, guess, measured, verdict or hand.")

    def take(self, post: Post) -> None:
        """Store a post.

        Raises:
            RoomFull: If there are too many seats.
        """
        if post.seat not in self._came and len(self._came) >= MOST_SEATS:
            raise RoomFull
        now, some = self._clock(), self._posts[post.kind, post.key]
        old = some.get(post.seat)
        if old and old.fields == post.fields:
            if post.kind == "verdict":
                old.time = now
            return
        self._came.setdefault(post.seat, now)
        post.time = now
        some.pop(post.seat, None)  # hands are in the order in which they were raised
        some[post.seat] = post
        if post.kind == "guess":
            self._last_key.pop(post.seat, None)
            self._last_key[post.seat] = post.key

    @property
    def seats(self) -> int:
        """The number of seats."""
        return len(self._came.keys() - {DESK})

    def near(self, shown: str) -> list[str]:
        """Return the keys with guesses, the shown key and the next one."""
        keys = [*self.course.questions]
        after = keys.index(shown) + 1 if shown in keys else 0
        return [key for key in keys if self._of("guess", key) or key in (shown, *keys[after:][:1])]

    def followed(self) -> str:
        """Return the key that most seats guessed last, or the first one without guesses."""
        first = Counter(self._last_key.values()).most_common(1)
        return first[0][0] if first else next(iter(self.course.questions), "")

    def values(self, kind: str, key: str) -> list[Any]:
        """Return the guesses or the measured values of all seats for a key."""
        return [post.fields["value"] for post in self._of(kind, key)]

    def pace(self) -> dict[str, Any]:
        """Return the seats in each notebook, and for each exercise how many have passed."""
        at = Counter(post.fields["notebook"] for post in self._of("at"))
        passed = [[key, counts["right"]] for key, counts, _ in self._verdicts()]
        titles = self.course.notebooks.items()
        notebooks = [[number, title, at[number]] for number, title in titles if at[number]]
        return {"notebooks": notebooks, "passed": passed, "learners": at.total()}

    def trouble(self) -> dict[str, Any]:
        """Return the verdicts and mistakes of each exercise, idle seats, and raised hands."""
        now, exercises = self._clock(), list[dict[str, Any]]()
        for key, counts, places in self._verdicts():
            sentence = self.course.mistakes.get
            slips = [[n, sentence(at, _NO_PLACE), at] for at, n in places.most_common()]
            recent = sum(now - post.time < _IDLE_S for post in self._of("verdict", key))
            exercises.append({"exercise": key, **counts, "slips": slips, "recent": recent})
        exercises.sort(key=lambda one: -one["recent"])
        last = dict(self._came)
        for (kind, _), posts in self._posts.items():
            if kind == "verdict":
                last |= {seat: max(last[seat], post.time) for seat, post in posts.items()}
        at = {post.seat: post.fields["notebook"] for post in self._of("at")}
        idle = Counter(number for seat, number in at.items() if now - last[seat] >= _IDLE_S)
        raised = [post for post in self._of("hand") if post.fields["up"]]
        hands = [[post.seat, at.get(post.seat, ""), int(now - post.time)] for post in raised]
        questions = [[one.key, one.text] for one in self.course.questions.values()]
        idle_seats = sorted(idle.items())
        return {"exercises": exercises, "idle": idle_seats, "hands": hands, "questions": questions}

    def _of(self, kind: str, key: str = "") -> list[Post]:
        return [*self._posts.get((kind, key), {}).values()]

    def _verdicts(self) -> Iterator[tuple[str, Counter[str], Counter[str]]]:
        """Yield each exercise with its statuses, and the places of its mistakes."""
        for key in sorted(self.course.exercises):
            if all_of_it := [post.fields for post in self._of("verdict", key)]:
                wrong = (one["misconception"] for one in all_of_it if one["status"] == "wrong")
                yield key, Counter(one["status"] for one in all_of_it), Counter(wrong)

    def _value(self, given: Mapping[str, Any], kind: str) -> dict[str, Any]:
        question = self.course.questions[given["key"]]
        value: Any = given.get("value")
        if question.choices:
            return _field(given, "value", question.choices)
        if type(value) not in (int, float) or not abs(value) <= _LARGEST:  # rejects NaN too
            raise ValueError("'value' must be a number that is not too large.")
        if kind == "guess" and question.unit and value < 0:
            raise ValueError(f"A number in {question.unit} cannot be negative.")
        if kind == "guess" and question.unit == "%" and value > 100:
            raise ValueError("A share must be between 0 and 100 %.")
        return {"value": float(value)}


def _field(given: Mapping[str, Any], name: str, known: Container[str]) -> dict[str, Any]:
    value = given.get(name)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"The value of {name!r} does not exist in this course.")
    return {name: value}
