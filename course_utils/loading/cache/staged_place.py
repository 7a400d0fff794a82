"""Where staged copies are kept: a private folder with a lock for each source, and room enough."""

from __future__ import annotations

import getpass
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from course_utils.errors import CourseError
from course_utils.hardware.machine import facts as machine_facts
from course_utils.loading.cache.staged_copy import StagedCopy, delete
from course_utils.loading.workers import mb

_ELSEWHERE = "name another place with to=... (--to in a terminal)"


@dataclass(frozen=True)
class Place:
    """A private folder for copies, in memory where there is /dev/shm."""

    folder: Path
    in_memory: bool

    def copies(self, key: str = "*") -> list[StagedCopy]:
        """Return the copies of one source or of all."""
        return [StagedCopy(folder) for folder in sorted(self.folder.glob(f"{key}-*"))]

    def copy(self, key: str, version: str) -> StagedCopy:
        """Return the copy of a version of a source, whether it is there or not."""
        return StagedCopy(self.folder / f"{key}-{version}")

    def _unfinished(self, key: str) -> Path:
        """Return where the copy of a source is built, and from where it is deleted."""
        return self.folder / f".{key}.unfinished"

    @contextmanager
    def building(self, copy: StagedCopy) -> Iterator[Path]:
        """Yield an empty folder that becomes the copy if all goes well; hold the lock."""
        unfinished = self._unfinished(copy.key)
        unfinished.mkdir(mode=0o700)
        try:
            yield unfinished
            unfinished.rename(copy.folder)
        finally:
            delete(unfinished)

    @contextmanager
    def locked(self, key: str, *, patient: bool = True) -> Iterator[bool]:
        """Hold the right to stage and remove copies of a source; it ends with the process.

        Yields whether it is held: not, if another process has it and we are not patient. What a
        killed process left is cleared away.
        """
        lock = FileLock(self.folder / f".{key}.lock", mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not patient:
                yield False
                return
            print("Another process is staging the same; waiting for it.", flush=True)
            lock.acquire()
        try:
            delete(self._unfinished(key))
            yield True
        finally:
            lock.release()

    def sweep(self) -> None:
        """Clear away what killed runs left, unless its lock shows that the run is alive."""
        left = {path.name.split(".")[1] for path in self.folder.glob(".*.unfinished")}
        doomed = [copy for copy in self.copies() if copy.is_doomed]
        for key in left | {copy.key for copy in doomed}:
            with self.locked(key, patient=False) as held:
                for copy in doomed if held else []:
                    if copy.key == key and copy.is_doomed:  # still, now that it cannot change
                        copy.remove()

    def need_room(self, name: str, needed: int, keep_free: int | None) -> None:
        """Refuse what does not fit, into the place or into the memory that the place takes.

        Args:
            name: what is to be staged.
            needed: bytes that it takes.
            keep_free: bytes that must stay free; None: a tenth of all there is.

        Raises:
            CourseError: there is too little room.
        """
        space = shutil.disk_usage(self.folder)
        limits = [(str(self.folder.parent), space.free, space.total)]
        memory = machine_facts.known(machine_facts.memory_free) if self.in_memory else None
        if memory is not None:
            whose = "this machine or its container, whose memory that takes,"
            limits.append((whose, memory, machine_facts.memory()))
        for where, free, total in limits:
            kept = total // 10 if keep_free is None else keep_free
            if free - kept < needed:
                raise CourseError(
                    f"{name} needs {mb(needed)}, but {where} has {mb(free)} free, of which "
                    f"{mb(kept)} are kept for the workers; remove copies with `course stage "
                    f"--remove`, stage less, or {_ELSEWHERE}."
                )


def find_place(to: str | os.PathLike[str] | None = None) -> Place:
    """Return the private folder in `to`, in /dev/shm or, where there is none, in the temp folder.

    Raises:
        CourseError: the folder cannot be made, or belongs to somebody else.
    """
    if to is not None:
        root = Path(to).expanduser().absolute()
    else:
        root = machine_facts.SHM if machine_facts.SHM.is_dir() else Path(tempfile.gettempdir())
    user = str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()
    folder = root / f"fast-data-loaders-{user}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        # /dev/shm is open to all: somebody could have put a folder or a link of theirs there
        own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not stat.S_ISDIR(status.st_mode) or not own:
            raise CourseError(f"{folder} is not yours; {_ELSEWHERE}.")
        folder.chmod(0o700)
    except PermissionError:
        raise CourseError(f"Writing to {root} is not allowed; {_ELSEWHERE}.") from None
    except (FileExistsError, NotADirectoryError):
        raise CourseError(f"{root} is a file, not a folder; {_ELSEWHERE}.") from None
    return Place(folder, _is_memory(folder.resolve()))


def _is_memory(folder: Path) -> bool:
    if not psutil.LINUX:
        return False
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    place = next((at for at in (folder, *folder.parents) if str(at) in mounts), None)
    return place is not None and mounts[str(place)] in ("tmpfs", "ramfs")
