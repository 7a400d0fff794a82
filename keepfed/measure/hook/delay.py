"""For how long a thread was ready to run and got no core, as Linux counts it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


def delay_ns() -> int:
    """Return the nanoseconds for which this thread was ready to run and got no core.

    0 where the system does not tell.
    """
    try:
        thread = threading.get_native_id()
        if _own.thread != thread:  # a forked process begins with the file of its parent
            _own.file, _own.thread = _File("/proc/thread-self/schedstat"), thread
        return int(_own.file.read().split()[1])
    except (OSError, IndexError):
        return 0


def has_delay() -> bool:
    """Return whether this system tells it."""
    return os.path.exists("/proc/thread-self/schedstat")


class _File:
    """A file kept open: to open it takes ten times as long as to read it."""

    def __init__(self, path: str):
        self.handle = -1
        self.handle = os.open(path, os.O_RDONLY)

    def read(self) -> bytes:
        return os.pread(self.handle, 100, 0)

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.handle)


class _Own(threading.local):
    """The file of each thread."""

    thread = 0
    file: _File


_own = _Own()
