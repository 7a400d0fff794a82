"""A file of all posts, from which a wall continues after a crash.

A post is answered after it is in the file. Posts that arrive together are written together.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from keepfed.files import replace_file


class Journal:
    """Appends lines of JSON to a file."""

    def __init__(self, path: Path, lines: Iterable[str]) -> None:
        """Replace the file by `lines`, and open it."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, "".join(f"{line}\n" for line in lines))
        path.chmod(0o600)  # it contains the tokens
        self._file = path.open("ab", buffering=0)
        self._lock = asyncio.Lock()
        self._lines: list[str] = []
        self._written: asyncio.Future[None] | None = None  # by the next write
        self._tasks = set[asyncio.Task[None]]()

    async def append(self, line: str) -> None:
        """Write a line.

        Raises:
            OSError: If it cannot be written.
        """
        self._lines.append(line)
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._write_waiting())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.shield(self._written)  # a client that disconnects must not cancel the others

    def delete(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    async def _write_waiting(self) -> None:
        async with self._lock:
            lines, self._lines = self._lines, []
            written, self._written = self._written, None
            assert written is not None
            try:
                await asyncio.to_thread(self._write, lines)
                written.set_result(None)
            except OSError as error:
                written.set_exception(error)

    def _write(self, lines: list[str]) -> None:
        # an earlier write may have stopped inside a line, for example because the disk was full
        self._file.write("".join(f"\n{line}" for line in [*lines, ""]).encode())
        os.fsync(self._file.fileno())


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal. Damaged lines, which were never acknowledged, are left out."""
    given = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(ValueError):
            given.append(json.loads(line))
    return [one for one in given if isinstance(one, dict)]
