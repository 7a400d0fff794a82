"""The leaderboard of a class: one file with the best result of each name.

The server reads the file at each request, so a teacher may edit it while the server runs, for
example to remove a name. The file is written atomically before a post is answered. Only one process
may serve a file. The server verifies neither results nor names, because the board is for fun.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

from course_utils.errors import CourseError
from course_utils.stories.leaderboard.result import Result
from keepfed.files import replace_file

_MOST_NAMES = 500
_MOST_SEEDS = 20  # lines of one name
_LONGEST_NAME = 30


class BoardEntry(NamedTuple):
    """A line of the board."""

    name: str
    result: Result

    @property
    def key(self) -> tuple[str, int]:
        """Return the unique key of a line: the name without its case, and the seed."""
        return self.name.casefold(), self.result.seed

    def to_json(self) -> dict[str, Any]:
        """Return the name and the fields of the result, which everybody may see."""
        return {"name": self.name, **self.result.to_json()}


class Board:
    """The results in a file, best first for each set of faults."""

    def __init__(self, path: Path) -> None:
        """Read an existing file, or start an empty board.

        Raises:
            CourseError: If the file is not a board.
            OSError: If the folder cannot be created.
        """
        self.path = path
        self.entries()
        path.parent.mkdir(parents=True, exist_ok=True)

    def entries(self) -> list[BoardEntry]:
        """Return the lines of the board.

        Raises:
            CourseError: If the file is damaged. The file is not changed.
        """
        try:
            text = self.path.read_text("utf-8")
            # allow the trailing comma that remains when someone deletes the last line
            given = json.loads(re.sub(r",\s*\n\s*\]", "\n]", text))["results"]
            entries = [_entry(one) for one in given]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CourseError(
                f"{self.path.name} is not a leaderboard, or it is damaged. Fix it or move it away."
            ) from None
        return _ranked(entries)

    def text(self) -> str:
        """Return the board as the page shows it."""
        return _text(self.entries())

    def take(self, given: object) -> str:
        """Add a result unless the name has a better one, and return a message with the place.

        Args:
            given: "name" and the fields of a `Result`.

        Raises:
            ValueError: If the result is invalid. The message gives the reason.
            CourseError: If the file is damaged.
            OSError: If the file cannot be written. The board is not changed.
        """
        new = _entry(given)
        if new.result.refused:
            raise ValueError(f"The check refused this result: {new.result.refused}")
        new.result.require_plausible()
        lines = {entry.key: entry for entry in self.entries()}
        old = lines.get(new.key)
        is_better = old is None or new.result.rank > old.result.rank
        if is_better:
            names = [name for name, _ in lines]
            if new.key[0] not in names and len({*names}) >= _MOST_NAMES:
                raise ValueError(f"The board is full. It has {_MOST_NAMES} names.")
            if old is None and names.count(new.key[0]) >= _MOST_SEEDS:
                raise ValueError(f"A name can have results for at most {_MOST_SEEDS} seeds.")
            lines[new.key] = new
            replace_file(self.path, _text(_ranked([*lines.values()])))
        rivals = [e for e in _ranked([*lines.values()]) if e.result.seed == new.result.seed]
        kept = lines[new.key]
        place = f"place {rivals.index(kept) + 1} of {len(rivals)}"
        if is_better:
            return f"{new.name}: {new.result.points} points, {place}."
        return f"{kept.name} keeps {kept.result.points} points, {place}. This result is not better."


def _entry(given: object) -> BoardEntry:
    result = Result.from_json(given)
    return BoardEntry(_name(given.get("name") if isinstance(given, dict) else None), result)


def _name(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError("The result has no name. Choose a name.")
    name = " ".join(normalize("NFC", given).split())
    # unprintable characters could reverse or hide the text of a line
    if len(name) > _LONGEST_NAME or not name.isprintable() or not re.search(r"\w", name):
        raise ValueError(
            f"A name must have 1 to {_LONGEST_NAME} printable characters, and a letter or a digit. "
            "Choose another name."
        )
    return name


def _ranked(entries: list[BoardEntry]) -> list[BoardEntry]:
    """Sort by seed, then by rank with the best first. Equals keep their order."""
    entries = sorted(entries, key=lambda entry: entry.result.rank, reverse=True)
    return sorted(entries, key=lambda entry: entry.result.seed)


def _text(entries: list[BoardEntry]) -> str:
    lines = [json.dumps(entry.to_json(), ensure_ascii=False) for entry in entries]
    return '{"results": [\n' + ",\n".join(lines) + "\n]}\n"
