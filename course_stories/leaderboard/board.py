"""The leaderboard of a class: one file with the best result of each name.

The server reads the file at each request, so a teacher may edit it while the server runs, for
example to remove a name. The file is written atomically before a post is answered. Only one process
may serve a file. The server does not verify results, because the board is for fun. The first post
of a name returns a word, and later posts of the same name need it. The file contains only its hash.
"""

from __future__ import annotations

import json
import re
import secrets
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, NamedTuple

from course_stories.leaderboard.names import looks_of, read_name
from course_stories.leaderboard.result import Result
from course_utils.errors import CourseError
from keepfed.files import replace_file

_MOST_NAMES = 500
_MOST_SEEDS = 20  # lines of one name
_LETTERS = "abcdefghjkmnpqrstuvwxyz"  # no letters that look like digits


class BoardEntry(NamedTuple):
    """A line of the board."""

    name: str
    result: Result
    word: str = ""  # hash of the word that later posts of the name need

    @property
    def key(self) -> tuple[str, int]:
        """Return the unique key of a line: the looks of the name and the seed of the faults."""
        return looks_of(self.name), self.result.seed

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
            entries = [_entry(one)._replace(word=str(one.get("word", ""))) for one in given]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CourseError(
                f"{self.path.name} is not a leaderboard, or it is damaged. Fix it or move it away."
            ) from None
        return _ranked(entries)

    def text(self) -> str:
        """Return the board without the words, as the page shows it."""
        return _text([entry.to_json() for entry in self.entries()])

    def take(self, given: object) -> str:
        """Add a result unless the name has a better one, and return a message with the place.

        Args:
            given: "name" and the fields of a `Result`, and "word" if the name is on the board.

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
        words = {looks: entry.word for (looks, _), entry in lines.items()}
        said, looks = "", new.key[0]
        if words.get(looks):
            word = str(given.get("word", "")) if isinstance(given, dict) else ""
            if not compare_digest(_hash(word), words[looks]):
                raise ValueError(
                    f"The name {new.name} is taken. If it is yours, add the word that your first "
                    'post returned: word="...". Otherwise choose another name.'
                )
            new = new._replace(word=words[looks])
        else:
            word = "".join(secrets.choice(_LETTERS) for _ in range(8))
            said = f' Later posts of this name need word="{word}".'
            new = new._replace(word=_hash(word))
        old = lines.get(new.key)
        is_better = old is None or new.result.rank > old.result.rank
        if is_better:
            if looks not in words and len(words) >= _MOST_NAMES:
                raise ValueError(f"The board is full. It has {_MOST_NAMES} names.")
            if old is None and sum(one == looks for one, _ in lines) >= _MOST_SEEDS:
                raise ValueError(f"A name can have results for at most {_MOST_SEEDS} seeds.")
            lines[new.key] = new
        if is_better or said:
            owned = [e._replace(word=new.word) if e.key[0] == looks else e for e in lines.values()]
            every = [{**e.to_json(), "word": e.word} for e in _ranked(owned)]
            replace_file(self.path, _text(every))
        rivals = [e for e in _ranked([*lines.values()]) if e.result.seed == new.result.seed]
        kept = lines[new.key]
        place = f"place {rivals.index(kept) + 1} of {len(rivals)}"
        if is_better:
            return f"{new.name}: {new.result.points} points, {place}.{said}"
        said = f"This result is not better.{said}"
        return f"{kept.name} keeps {kept.result.points} points, {place}. {said}"


def _entry(given: object) -> BoardEntry:
    result = Result.from_json(given)
    return BoardEntry(read_name(given.get("name") if isinstance(given, dict) else None), result)


def _hash(word: str) -> str:
    return sha256(word.strip().lower().encode()).hexdigest()


def _ranked(entries: list[BoardEntry]) -> list[BoardEntry]:
    """Sort by seed, then by rank with the best first. Equals keep their order."""
    entries = sorted(entries, key=lambda entry: entry.result.rank, reverse=True)
    return sorted(entries, key=lambda entry: entry.result.seed)


def _text(every: list[dict[str, Any]]) -> str:
    lines = [json.dumps(one, ensure_ascii=False) for one in every]
    return '{"results": [\n' + ",\n".join(lines) + "\n]}\n"
