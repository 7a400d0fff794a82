"""Memory shared by all processes that use one emulated storage, and its lock.

The memory is a file that each process maps. Workers receive only the path of its folder, so it
works with fork, forkserver and spawn. The operating system releases the lock if the process that
holds it is killed. Locking costs 2 µs. (`filelock`, the usual library, costs 100 µs, or 345 µs if
eight processes compete, because it reopens the file and sleeps long between attempts.)
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from keepfed.forks import reset_after_fork

_PREFIX = "slow-storage-"
_SPARE = 16  # use at most 1/16 of the free memory, because batches need /dev/shm too

_EAGER = 50  # attempts to lock without sleeping; the lock is held for about 20 µs

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> bool:
        os.lseek(handle, 0, os.SEEK_SET)
        with suppress(PermissionError):
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            return True
        return False

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        with suppress(PermissionError):
            msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

    def _mark_alive(handle: int) -> None:
        """Do nothing, because leftovers are in the temporary folder, not in memory."""

    def _abandoned(folder: Path) -> bool:
        return False

else:
    import fcntl

    # Locks of `lockf` belong to a process: a forked child does not inherit them, unlike `flock`.
    def _lock(handle: int) -> bool:
        """Take the lock if it is free, and return whether it was free."""
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            return True
        return False

    def _unlock(handle: int) -> None:
        """Release the lock; do nothing if this process does not hold it."""
        fcntl.lockf(handle, fcntl.LOCK_UN, 1)

    def _mark_alive(handle: int) -> None:
        """Lock the second byte until this process ends, even if it is killed."""
        fcntl.lockf(handle, fcntl.LOCK_EX, 1, 1)

    def _abandoned(folder: Path) -> bool:
        """Return whether the process that created a state ended without removing it."""
        try:
            if time.time() - folder.stat().st_mtime < 60:
                return False  # it may be under construction
            with (folder / "lock").open("r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
        except OSError:
            return False
        return True


class SharedState:
    """Bytes that several processes modify one at a time, and their common settings.

    Open it once per process: closing any handle of the lock file would release all its locks.
    """

    _thread_lock: threading.Lock

    def __init__(self, folder: str):
        """Map the state that `create` made in `folder`.

        Raises:
            FileNotFoundError: If the state was removed.
        """
        try:
            self.settings: dict[str, Any] = json.loads(Path(folder, "settings.json").read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"The emulated storage {folder} no longer exists, because the process that "
                "created it has ended. Create a new one with slow_storage()."
            ) from None
        with Path(folder, "memory").open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.memory = memoryview(self._map)
        self._inside = self.memory[:8].cast("q")  # the process that holds the lock; 0: none
        self._file_lock = os.open(Path(folder, "lock"), os.O_RDWR)
        reset_after_fork(self, "_thread_lock", threading.Lock)
        self.repair: Callable[[], None] = lambda: None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out every other process and thread.

        The first word is the process that holds the lock. If it is not 0 when the lock is free,
        that process was killed or interrupted, so `repair` is called.
        """
        with self._thread_lock:
            try:
                self._wait_for_lock()
                if self._inside[0]:
                    self.repair()
                self._inside[0] = os.getpid()
                yield
                self._inside[0] = 0
            finally:
                _unlock(self._file_lock)

    def _wait_for_lock(self) -> None:
        """Try until the lock is free.

        A blocking system call can report a false deadlock, when threads of two processes use the
        same two storages.
        """
        tries = 0
        while not _lock(self._file_lock):
            time.sleep(0 if tries < _EAGER else min(tries / 1e6, 0.01))
            tries += 1

    def mark_alive(self) -> None:
        """Mark the state as used by this living process, its creator."""
        _mark_alive(self._file_lock)

    def close(self) -> None:
        """Close the file. The memory must no longer be in use."""
        self._inside.release()
        self.memory.release()
        self._map.close()
        os.close(self._file_lock)


def create(settings: dict[str, Any], size: int) -> str:
    """Create a state of `size` zeroed bytes, in memory if possible, and return its folder.

    Raises:
        OSError: If no location has enough free space.
    """
    homes = _homes()
    if shutil.disk_usage(homes[0]).free < _SPARE * size:
        homes.reverse()
    for home in homes:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=home)
        try:
            # Write the bytes: touching a hole in a full /dev/shm would kill the process.
            Path(folder, "memory").write_bytes(bytes(size))
            Path(folder, "lock").write_bytes(b"\0")
            Path(folder, "settings.json").write_text(json.dumps(settings))
            return folder
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
    raise OSError(
        f"An emulated storage needs {size / 1e6:.1f} MB in {' or '.join(homes)}. Free some space "
        "there, or choose a smaller cache_mb."
    )


def remove_at_exit(folder: str, close: Callable[[], None]) -> None:
    """Remove the state when this process ends, but not when a fork of it ends."""
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            with suppress(BufferError):  # a view of the memory is still in use
                close()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def remove_abandoned(*, but: Collection[str]) -> None:
    """Remove states left behind by killed processes.

    `but` are the states this process has open: closing their lock file would release the lock.
    """
    for home in _homes():
        for folder in Path(home).glob(f"{_PREFIX}*"):
            if str(folder) not in but and _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _homes() -> list[str]:
    """Return the folders that may contain a state, the best one first."""
    disk = tempfile.gettempdir()
    if sys.platform == "linux" and os.access("/dev/shm", os.W_OK):
        return ["/dev/shm", disk]
    return [disk]
