"""Open a SQLite database to read it, on the disk or on a file system of fsspec."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import apsw

from course_utils.loading.events.labels import open_file

_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def connect(path: str, fs: Any = None) -> apsw.Connection:
    """Open a database that nobody writes to: SQLite locks nothing and looks for no journal.

    Raises:
        apsw.Error: there is no database at `path` that can be opened.
    """
    if fs is None:
        return apsw.Connection(f"{Path(path).absolute().as_uri()}?immutable=1", _FLAGS)
    file_system = _FileSystem(path, fs)
    return apsw.Connection("file:database?immutable=1", _FLAGS, vfs=file_system.name)


class _FileSystem(apsw.VFS):
    """Shows SQLite one file of fsspec; the connection keeps it alive."""

    def __init__(self, path: str, fs: Any):
        self.path, self.fs, self.name = path, fs, f"fsspec-{id(self)}"
        super().__init__(self.name, base="")

    def xFullPathname(self, name: str) -> str:
        return name

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _Pages(open_file(self.path, self.fs))


class _Pages:
    """A file as SQLite reads it: each page is one request."""

    def __init__(self, file: BinaryIO):
        self.file = file

    def xRead(self, amount: int, offset: int) -> bytes:
        self.file.seek(offset)
        return self.file.read(amount)

    def xFileSize(self) -> int:
        return self.file.seek(0, 2)

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False

    def xClose(self) -> None:
        self.file.close()
