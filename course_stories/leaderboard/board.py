"""The board of a class: the best result of each name, in one file.

The file is the board. It is read at each request, so whoever runs the class may edit it meanwhile,
to take a name off for instance; and it is written whole or not at all, before a post is answered.
One process at a time serves a file. What is posted is believed: the board is for fun, no exam.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

from course_stories.leaderboard.result import Result
from course_utils.errors import CourseError
from keepfed.files import replace_file

_LONGEST_NAME = 30
_MOST_NAMES = 500


class BoardEntry(NamedTuple):
    """A line of the board."""

    name: str
    result: Result

    @property
    def key(self) -> tuple[str, int]:
        """Return what a board has once: a name, however it is spelled, for one set of faults."""
        return normalize("NFKC", self.name).casefold(), self.result.seed

    def to_json(self) -> dict[str, Any]:
        """Return the name and the fields of the result, and nothing else."""
        return {"name": self.name, **self.result.to_json()}


class Board:
    """The results in a file, best first for each set of faults."""

    def __init__(self, path: Path) -> None:
        """Begin with what lies there already.

        Raises:
            CourseError: what lies there is no board.
            OSError: it cannot lie there.
        """
        self.path = path
        self.entries()
        path.parent.mkdir(parents=True, exist_ok=True)

    def entries(self) -> list[BoardEntry]:
        """Return the lines of the board.

        Raises:
            CourseError: the file is damaged; it stays as it is.
        """
        try:
            text = self.path.read_text("utf-8")
            # who takes out the last line leaves a comma before it; no string of JSON has line ends
            given = json.loads(re.sub(r",\s*\n\s*\]", "\n]", text))["results"]
            entries = [_entry(one) for one in given]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CourseError(
                f"{self.path.name} is no board, or damaged; mend it, or put it elsewhere."
            ) from None
        return _ranked(entries)

    def text(self) -> str:
        """Return the board as the file has it."""
        return _text(self.entries())

    def take(self, given: object) -> str:
        """Put a result on the board, unless that name has a better one; say where it stands.

        Args:
            given: "name" and the fields of a `Result`.

        Raises:
            ValueError: they cannot be on a board; the sentence says why.
            CourseError: the file is damaged.
            OSError: it cannot be written; the board is as it was.
        """
        new = _entry(given)
        if new.result.refused:
            raise ValueError(f"Refused, so not on the board: {new.result.refused}")
        lines = {entry.key: entry for entry in self.entries()}
        old = lines.get(new.key)
        is_better = old is None or new.result.rank > old.result.rank
        if is_better:
            if old is None and len(lines) >= _MOST_NAMES:
                raise ValueError(f"The board is full: it has {_MOST_NAMES} lines.")
            lines[new.key] = new
            replace_file(self.path, _text(_ranked([*lines.values()])))
        rivals = [e for e in _ranked([*lines.values()]) if e.result.seed == new.result.seed]
        kept = lines[new.key]
        place = f"place {rivals.index(kept) + 1} of {len(rivals)}"
        if is_better:
            return f"{new.name}: {new.result.points} points, {place}."
        return f"{kept.name} keeps {kept.result.points} points, {place}: this was no better."


def _entry(given: object) -> BoardEntry:
    result = Result.from_json(given)
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(name, str):
        raise ValueError("A result on a board needs a name; choose one.")
    name = " ".join(normalize("NFC", name).split())
    # what is not printable could turn the text of a line round, or hide in it
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"A name has 1 to {_LONGEST_NAME} letters, digits or signs; choose another."
        )
    if not re.search(r"\w", name):
        raise ValueError("A name has a letter or a digit in it; choose another.")
    return BoardEntry(name, result)


def _ranked(entries: list[BoardEntry]) -> list[BoardEntry]:
    """Sort by the set of faults, then the best first; of equals, whoever came first."""
    entries = sorted(entries, key=lambda entry: entry.result.rank, reverse=True)
    return sorted(entries, key=lambda entry: entry.result.seed)


def _text(entries: list[BoardEntry]) -> str:
    lines = [json.dumps(entry.to_json(), ensure_ascii=False) for entry in entries]
    return '{"results": [\n' + ",\n".join(lines) + "\n]}\n"
