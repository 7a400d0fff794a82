"""The guesses and measured values of a class: the last ones of each seat about each question.

They are lines of JSON in a file. A wall that is started again reads them and continues.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from course_utils.stories.wall.picture import draw
from course_utils.stories.wall.questions import Question

TEACHER = "teacher"  # seat of the teacher, who may measure for the class
_MOST_POSTS = 100_000
_SEAT = re.compile(r"[a-z2-9]{4,16}")
_LARGEST = 1e15


class Post(NamedTuple):
    """A valid post."""

    seat: str
    kind: str  # guess or measured
    about: str  # key of the question
    value: float | str


class Room:
    """The posts of a class, and the question that the wall shows."""

    def __init__(self, file: Path, questions: Mapping[str, Question]) -> None:
        """Read the posts in the file, if it exists.

        Args:
            file: File of the posts, to which new posts are added.
            questions: Questions by key, in the order of the course.
        """
        self.key = ""  # chosen by the teacher, or "" to follow the room
        self.uncovered = set[str]()  # keys whose measured values are shown
        self.questions = questions
        self._file, self._number = file, 0  # lines in the file
        self._posts = defaultdict[tuple[str, str], dict[str, Any]](dict)
        self._last_key = dict[str, str]()  # that each seat has guessed
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            self._number += 1
            with suppress(ValueError):  # such as a line that was not completely written
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
        if kind in ("guess", "measured") and isinstance(about, str) and about in self.questions:
            return Post(seat, kind, about, _answer(self.questions[about], kind, value))
        raise ValueError("The wall takes no such post. Send what the notebook sends.")

    def take(self, post: Post) -> None:
        """Store a post.

        Raises:
            ValueError: If there are too many posts.
            OSError: If the file cannot be written. The post is then not stored.
        """
        if self._posts[post.kind, post.about].get(post.seat) != post.value:
            if self._number >= _MOST_POSTS:
                raise ValueError("The wall is full.")
            # other users of the machine may not read what a class guesses
            with open(self._file, "a", encoding="utf-8", opener=_for_this_user) as file:
                file.write(json.dumps(post._asdict()) + "\n")
            self._number += 1
        self._keep(post)

    def _keep(self, post: Post) -> None:
        self._posts[post.kind, post.about][post.seat] = post.value
        if post.kind == "guess":
            self._last_key[post.seat] = post.about

    def shown(self) -> dict[str, Any]:
        """Return what everybody may see: the question and its picture."""
        most_guessed = Counter(self._last_key.values()).most_common(1)
        key = self.key or (most_guessed[0][0] if most_guessed else next(iter(self.questions)))
        question = self.questions[key]
        guesses, measured = ([*self._posts[kind, key].values()] for kind in ("guess", "measured"))
        return {
            **question._asdict(),
            **draw(question, guesses, measured if key in self.uncovered else ()),
            "guessed": len(guesses),
            "uncovered": key in self.uncovered,
            "seats": len(self._last_key),
        }


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _answer(question: Question, kind: str, value: Any) -> float | str:
    if question.choices:
        if value not in question.choices:
            raise ValueError("The value is not one of the choices.")
        return str(value)
    is_bounded = kind == "guess" and question.unit != ""
    low = 0 if is_bounded else -_LARGEST
    high = 100 if is_bounded and question.unit == "%" else _LARGEST
    if type(value) not in (int, float) or not low <= value <= high:  # rejects NaN too
        raise ValueError(f"The value must be a number from {low:g} to {high:g}.")
    return float(value)
