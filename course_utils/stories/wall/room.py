"""The posts of a class: the last one of each seat about each question or exercise.

They are lines of JSON in a file. A wall that is started again reads them and continues.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from course_utils.stories.wall.picture import draw
from course_utils.stories.wall.questions import Question

TEACHER = "teacher"  # seat of the teacher, who may measure for the class
_MOST_SEATS, _MOST_POSTS = 500, 100_000
_SEAT, _EXERCISE = re.compile(r"[a-z2-9]{4,16}"), re.compile(r"[0-9A-Z]{1,2}\.\d")
_LARGEST = 1e15
_LONGEST_SLIP, _LONGEST_NAME = 200, 30
_MOST = {"seed": 10**9, "points": 100, "au": 1, "start_up_s": 10**6}  # of a result


class RoomFull(Exception):
    """The room has the maximum number of seats or posts."""


class Post(NamedTuple):
    """A valid post."""

    seat: str
    kind: str  # at, hand, guess, measured, verdict or result
    about: str  # the question, the exercise, or the seed of the result, otherwise ""
    value: Any


class Room:
    """The posts of a class, and the question that the wall shows."""

    def __init__(
        self, file: Path, questions: Mapping[str, Question], titles: Mapping[str, str]
    ) -> None:
        """Read the posts in the file, if it exists.

        Args:
            file: File of the posts, to which new posts are added.
            questions: Questions by key, in the order of the course.
            titles: Titles of the notebooks, by number.
        """
        self.key = ""  # chosen by the teacher, or "" to follow the room
        self.uncovered = set[str]()  # keys whose measured values are shown
        self.questions = questions
        self._titles, self._file, self._number = titles, file, 0  # lines in the file
        self._posts = defaultdict[tuple[str, str], dict[str, Any]](dict)
        self._last_key = dict[str, str]()  # that each seat has guessed
        self._seats = set[str]()
        for line in file.read_bytes().splitlines() if file.exists() else ():
            self._number += 1
            with suppress(ValueError, RecursionError):  # such as a line that was cut off
                self._keep(self.read(json.loads(line)))

    def read(self, given: object) -> Post:
        """Return a valid post.

        Raises:
            ValueError: If the post is not valid. The message gives the reason.
        """
        if not isinstance(given, dict):
            raise ValueError("The post is not a JSON object.")
        seat, kind, about, value = (given.get(name) for name in Post._fields)
        if not isinstance(seat, str) or not _SEAT.fullmatch(seat):
            raise ValueError("'seat' must have 4 to 16 characters of a-z and 2-9.")
        match kind, value:
            case "at", str() if value in self._titles:
                return Post(seat, "at", "", value)
            case "hand", bool():
                return Post(seat, "hand", "", value)
            case "guess" | "measured", _ if isinstance(about, str) and about in self.questions:
                return Post(seat, str(kind), about, _answer(self.questions[about], kind, value))
            case "verdict", {"status": "right" | "wrong" | "todo" as status, "slip": str(slip)}:
                if isinstance(about, str) and _EXERCISE.fullmatch(about):
                    verdict = {
                        "status": status,
                        "slip": "".join(filter(str.isprintable, slip))[:_LONGEST_SLIP],
                    }
                    return Post(seat, "verdict", about, verdict)
            case "result", dict():
                result = _result(value)
                return Post(seat, "result", str(result["seed"]), result)
        raise ValueError("The wall takes no such post. Send what the notebook sends.")

    def take(self, post: Post) -> str:
        """Store a post, and return an answer to a result.

        Raises:
            RoomFull: If there are too many seats or posts.
            OSError: If the file cannot be written. The post is then not stored.
        """
        posts = self._posts[post.kind, post.about]
        old = posts.get(post.seat)
        if post.kind == "result" and old and _rank(old) >= _rank(post.value):
            return f"{old['name']} keeps {old['points']} points. This result is not better."
        if old != post.value:
            seats = self._seats | {post.seat}
            if self._number >= _MOST_POSTS or len(seats) > _MOST_SEATS:
                raise RoomFull
            # other users of the machine may not read what a class guesses
            with open(self._file, "a", encoding="utf-8", opener=_for_this_user) as file:
                file.write(json.dumps(post._asdict()) + "\n")
            self._number += 1
        self._keep(post)
        if post.kind != "result":
            return ""
        place = 1 + sum(_rank(other) > _rank(post.value) for other in posts.values())
        return (
            f"{post.value['name']}: {post.value['points']} points, place {place} of {len(posts)}."
        )

    def _keep(self, post: Post) -> None:
        self._seats.add(post.seat)
        self._posts[post.kind, post.about][post.seat] = post.value
        if post.kind == "at" or post.value is False:  # a new kernel has a new button
            self._posts["hand", ""].pop(post.seat, None)
        if post.kind == "guess":
            self._last_key[post.seat] = post.about

    def shown(self) -> dict[str, Any]:
        """Return what everybody may see: the question, its picture, the pace and the results."""
        most_guessed = Counter(self._last_key.values()).most_common(1)
        key = self.key or (most_guessed[0][0] if most_guessed else next(iter(self.questions)))
        question = self.questions[key]
        guesses, measured = ([*self._posts[kind, key].values()] for kind in ("guess", "measured"))
        notebooks = Counter(self._posts["at", ""].values())
        results = [result for _, posts in self._about("result") for result in posts.values()]
        return {
            **question._asdict(),
            **draw(question, guesses, measured if key in self.uncovered else ()),
            "guessed": len(guesses),
            "uncovered": key in self.uncovered,
            "seats": len(self._seats - {TEACHER}),
            "notebooks": [[n, title, notebooks[n]] for n, title in self._titles.items()],
            "passed": [[exercise, right] for exercise, (right, *_), _ in self._checks()],
            "results": sorted(results, key=_rank, reverse=True),
        }

    def trouble(self) -> dict[str, Any]:
        """Return what only the teacher sees: mistakes, raised hands and all questions."""
        at, hands = self._posts["at", ""], self._posts["hand", ""]
        return {
            "hands": [[seat, at.get(seat, "")] for seat in hands],
            "checks": [*self._checks()],
            "questions": [[question.key, question.text] for question in self.questions.values()],
        }

    def _about(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the posts of a kind for each question or exercise."""
        return sorted((about, posts) for (of, about), posts in self._posts.items() if of == kind)

    def _checks(self) -> Iterator[tuple[str, list[int], list[tuple[str, int]]]]:
        """Yield each exercise, how often it is right, wrong and not attempted, and its mistakes."""
        for exercise, posts in self._about("verdict"):
            statuses = Counter(verdict["status"] for verdict in posts.values())
            slips = Counter(verdict["slip"] for verdict in posts.values() if verdict["slip"])
            counts = [statuses[status] for status in ("right", "wrong", "todo")]
            yield exercise, counts, slips.most_common(5)


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _answer(question: Question, kind: object, value: Any) -> Any:
    if question.choices:
        if value not in question.choices:
            raise ValueError("The value is not one of the choices.")
        return value
    is_bounded = kind == "guess" and question.unit != ""
    low = 0 if is_bounded else -_LARGEST
    high = 100 if is_bounded and question.unit == "%" else _LARGEST
    if type(value) not in (int, float) or not low <= value <= high:  # rejects NaN too
        raise ValueError(f"The value must be a number from {low:g} to {high:g}.")
    return float(value)


def _result(given: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {field: given.get(field) for field in _MOST}
    for field, value in result.items():
        if type(value) not in (int, float) or not 0 <= value <= _MOST[field]:  # rejects NaN too
            raise ValueError(f"{field!r} must be a number from 0 to {_MOST[field]:,}.")
    name = " ".join(str(given.get("name", "")).split())
    # Unprintable characters could reverse or hide the text of a line.
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(f"A name must have 1 to {_LONGEST_NAME} printable characters.")
    return {"name": name, **result}


def _rank(result: Mapping[str, Any]) -> tuple[float, float, float]:
    return result["points"], result["au"], -result["start_up_s"]
