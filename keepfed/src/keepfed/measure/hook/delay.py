"""The run-queue delay of a thread: the time in which it was ready but had no core."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


def delay_ns() -> int:
    """Return the nanoseconds in which this thread was ready to run but had no core.

    Only Linux counts this time. On other systems, the result is 0.
    """
    try:
        thread = threading.get_native_id()
        if _own.thread != thread:  # a forked process inherits the file of its parent
            _own.file, _own.thread = _File("/proc/thread-self/schedstat"), thread
        return int(_own.file.read().split()[1])
    except (OSError, IndexError):
        return 0


def has_delay() -> bool:
    """Return whether this system counts the delay."""
    return os.path.exists("/proc/thread-self/schedstat")


class _File:
    """A file that stays open, because opening it takes ten times as long as reading it."""

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
