"""Summary of a wall, without seats: guesses, measured values and mistakes of a class."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from course_stories.wall.picture import quantile
from course_stories.wall.room import Room

_SUMS = ("n", "quarter", "median", "three_quarters")
_COLUMNS = ("date", "key", "text", *_SUMS, *(f"{name}_measured" for name in _SUMS))


def add_sums(path: Path, room: Room) -> None:
    """Append the summary of a room to a CSV file."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        if is_new:
            table.writerow(_COLUMNS)
        table.writerows([date.today(), *row] for row in _rows(room))


def _rows(room: Room) -> Iterator[list[Any]]:
    """Yield a row for each question or its choices, and for each mistake in an exercise."""
    for key in room.answered():
        question = room.course.questions[key]
        guesses, measured = room.values("guess", key), room.values("measured", key)
        for choice in question.choices:
            yield [key, choice, guesses.count(choice), "", "", "", measured.count(choice)]
        if not question.choices:
            yield [key, question.text, *_summary(guesses), *_summary(measured)]
    for place, count in room.mistakes().most_common():
        yield [place, room.course.mistakes.get(place, ""), count]


def _summary(values: Sequence[float]) -> list[Any]:
    quarters = [quantile(values, share) for share in (0.25, 0.5, 0.75)] if values else [""] * 3
    return [len(values), *quarters]
