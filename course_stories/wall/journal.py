"""A file of all posts, from which a wall can continue after its process was killed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from keepfed.files import replace_file


class Journal:
    """File of JSON lines that survive the process, but perhaps not a power failure."""

    def __init__(self, path: Path, lines: Iterable[str]) -> None:
        """Replace the file by `lines`, and open it."""
        self.path = path
        replace_file(path, "".join(f"{line}\n" for line in lines), mode=0o600)  # has the tokens
        self._file = path.open("ab", buffering=0)
        self._waiting = b""  # not written yet, for example because the disk was full

    def append(self, line: str) -> None:
        """Write a line, or "" for none, after the lines that could not be written earlier.

        Raises:
            OSError: If not all lines are written.
        """
        self._waiting += f"{line}\n".encode() if line else b""
        while self._waiting:
            self._waiting = self._waiting[self._file.write(self._waiting) :]

    def delete(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal. Damaged lines, which were never acknowledged, are left out."""
    given = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(ValueError):
            given.append(json.loads(line))
    return [one for one in given if isinstance(one, dict)]
