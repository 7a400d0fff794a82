"""The memory that all processes using one emulated storage have in common, and its lock.

It is a file that each of them maps. Only the path of its folder travels to a worker, so it works
under fork, forkserver and spawn. The lock is the operating system's own: it falls when the process
that holds it is killed, and costs 2 µs (`filelock`, the usual library, costs 100 µs, and 345 µs a
turn where eight processes want it, since it opens the file anew and sleeps long between its tries).
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
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from keepfed.forks import reset_after_fork

_PREFIX = "slow-storage-"
_SPARE = 16  # a state takes no more than this part of the free memory: batches travel there too

_EAGER = 50  # so often the lock is asked for without a sleep; it is held for some 20 µs
_PATIENCE_S = 10  # then whoever waits for the lock says for whom

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

    def _stay(handle: int) -> None:
        """Do nothing: what is left over lies in the temporary folder, not in memory."""

    def _abandoned(folder: Path) -> bool:
        return False

else:
    import fcntl

    # lockf belongs to the process: a forked child does not hold its parent's lock, as with flock
    def _lock(handle: int) -> bool:
        """Take the lock if it is free; tell whether it was."""
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            return True
        return False

    def _unlock(handle: int) -> None:
        """Give the lock back; without it, do nothing."""
        fcntl.lockf(handle, fcntl.LOCK_UN, 1)

    def _stay(handle: int) -> None:
        """Hold the second byte until this process ends, however it ends."""
        fcntl.lockf(handle, fcntl.LOCK_EX, 1, 1)

    def _abandoned(folder: Path) -> bool:
        """Tell whether the process that made a state has ended without removing it."""
        try:
            if time.time() - folder.stat().st_mtime < 60:
                return False  # it may just be in the making
            with (folder / "lock").open("r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
        except OSError:
            return False
        return True


class SharedState:
    """Bytes that several processes change in turn, and the settings they agree on.

    Open it once in a process: closing any handle of the lock file would drop the lock of all.
    """

    _thread_lock: threading.Lock

    def __init__(self, folder: str):
        """Map the state that `create` left in `folder`.

        Raises:
            FileNotFoundError: it has gone.
        """
        try:
            self.settings: dict[str, Any] = json.loads(Path(folder, "settings.json").read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"The emulated storage {folder} is gone, since it ends with the process that made "
                "it; make a new one with slow_storage()."
            ) from None
        with Path(folder, "memory").open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.memory = memoryview(self._map)
        self._inside = self.memory[:8].cast("q")  # which process, 0: none
        self._file_lock = os.open(Path(folder, "lock"), os.O_RDWR)
        reset_after_fork(self, "_thread_lock", threading.Lock)
        self.repair: Callable[[], None] = lambda: None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process and thread out.

        The first word says which process is inside: where one stands already, it was killed or
        interrupted there, and `repair` is called.
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
        """Ask until the lock is free.

        The system's way to wait could not say for whom. And where two threads of one process use
        two storages that another process uses too, it sees a deadlock that is none.
        """
        begun, tries, is_said = time.monotonic(), 0, False
        while not _lock(self._file_lock):
            time.sleep(0 if tries < _EAGER else min(tries / 1e6, 0.01))
            tries += 1
            if not is_said and time.monotonic() - begun > _PATIENCE_S:
                is_said = True
                warnings.warn(
                    f"The emulated storage waits for process {self._inside[0]}, which has been "
                    f"in it for {_PATIENCE_S} s: if it is stopped, let it go on, or end it.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def stay(self) -> None:
        """Mark the state as that of a living process: the one that made it."""
        _stay(self._file_lock)

    def close(self) -> None:
        """Let the file go; the memory must not be in use any more."""
        self._inside.release()
        self.memory.release()
        self._map.close()
        os.close(self._file_lock)


def create(settings: dict[str, Any], size: int) -> str:
    """Make a state of `size` zeroed bytes, in memory where that is ample; return its folder.

    Raises:
        OSError: there is no room for it anywhere.
    """
    homes = _homes()
    if shutil.disk_usage(homes[0]).free < _SPARE * size:
        homes.reverse()
    for home in homes:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=home)
        try:
            # written, not just made long: a hole in a full /dev/shm kills whoever touches it
            Path(folder, "memory").write_bytes(bytes(size))
            Path(folder, "lock").write_bytes(b"\0")
            Path(folder, "settings.json").write_text(json.dumps(settings))
            return folder
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
    raise OSError(
        f"An emulated storage needs {size / 1e6:.1f} MB in {' or '.join(homes)}; free some room "
        "there, or ask for a smaller cache_mb."
    )


def remove_at_exit(folder: str, close: Callable[[], None]) -> None:
    """Remove the state when this process, not a fork of it, ends."""
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            with suppress(BufferError):  # some part of the memory is still looked at
                close()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def remove_abandoned(*, but: Collection[str]) -> None:
    """Remove the states that killed processes left behind.

    `but` are those that this process has open: to look at their lock file would drop the lock.
    """
    for home in _homes():
        for folder in Path(home).glob(f"{_PREFIX}*"):
            if str(folder) not in but and _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _homes() -> list[str]:
    """Return where a state may lie, the best place first."""
    disk = tempfile.gettempdir()
    if sys.platform == "linux" and os.access("/dev/shm", os.W_OK):
        return ["/dev/shm", disk]
    return [disk]
