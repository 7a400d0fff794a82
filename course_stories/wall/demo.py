"""Simulated learners for a rehearsal: they work in notebook 02, and guess in the decks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from course_stories.wall.questions import Question
from course_stories.wall.room import MOST_SEATS, Room

_NOTEBOOK = "02"
_PAUSE_S = 1.0


async def play(room: Room, seats: int, chosen: Callable[[], str]) -> None:
    """Post as `seats` learners. Most posts come at once, and the rest one at a time.

    Later, all learners guess if `chosen` returns the key of a question outside the notebook.
    """
    random, rest = Random(seats), []
    names = [f"demo{_letters(number)}" for number in range(min(seats, MOST_SEATS))]
    for number, seat in enumerate(names):
        posts = list(_posts(room, seat, random))
        now = len(posts) if number % 4 else len(posts) // 2
        rest += posts[now:]
        for post in posts[:now]:
            room.take(room.read(post))
    while True:
        if rest:
            room.take(room.read(rest.pop(0)))
        await asyncio.sleep(_PAUSE_S)
        question = room.course.questions.get(chosen())
        if not question or question.key.startswith(_NOTEBOOK) or room.values("guess", question.key):
            continue
        for seat in names:
            about = {"seat": seat, "kind": "guess", "key": question.key}
            room.take(room.read({**about, "value": _value(question, random, spread=0.8)}))


def _posts(room: Room, seat: str, random: Random) -> Iterator[dict[str, Any]]:
    yield {"seat": seat, "kind": "at", "notebook": random.choice(["01", *[_NOTEBOOK] * 6, "03"])}
    questions = [one for key, one in room.course.questions.items() if key.startswith(_NOTEBOOK)]
    for question in questions[: random.randint(1, 3)]:
        about = {"seat": seat, "key": question.key}
        yield {**about, "kind": "guess", "value": _value(question, random, spread=0.8)}
        yield {**about, "kind": "measured", "value": _value(question, random, spread=0.06)}
    places = [
        place
        for place, sentence in room.course.mistakes.items()
        if place.startswith(f"nb{_NOTEBOOK}/ex1") and sentence.endswith(".") and len(sentence) > 60
    ]
    for exercise in sorted(one for one in room.course.exercises if one.startswith(_NOTEBOOK))[:2]:
        status = random.choice(["right", "right", "wrong", "todo"])
        about = {"seat": seat, "kind": "verdict", "exercise": exercise}
        yield {**about, "status": status, "misconception": random.choice([*places[:3], ""])}
    yield {"seat": seat, "kind": "hand", "up": random.random() < 0.06}


def _value(question: Question, random: Random, *, spread: float) -> float | str:
    if question.choices:
        return random.choice(question.choices) if spread > 0.5 else question.choices[-1]
    value = 1.0 + 30 * Random(question.key).random()  # the same for all seats
    value *= random.lognormvariate(0.0, spread)
    return round(min(value, 100.0) if question.unit == "%" else value, 1)


def _letters(number: int) -> str:
    return "".join("abcdefghjk"[int(digit)] for digit in f"{number:03}")
