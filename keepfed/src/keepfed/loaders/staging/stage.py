"""Stage data: copy them to /dev/shm once, completely or not at all, for all jobs that share it.

    with stage_to_shm("/lustre/events-M") as staged:
        events = MemmapEvents(staged.path)

Reading a copy in /dev/shm is as fast as reading a file from a warm page cache, but the system never
evicts the copy. It can only move it to swap, if the machine has any. The copy costs memory, and it
leaves less of /dev/shm for the batches of workers. On some systems, /dev/shm is private to a job or
a container, or it is emptied at logout.
"""

from __future__ import annotations

import errno
import getpass
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from keepfed.errors import KeepfedError, sentence
from keepfed.formatting import size
from keepfed.limits import SHM, known, memory, memory_free
from keepfed.loaders.staging.staged_copy import CopyLease, StagedCopy, delete, unfinished
from keepfed.loaders.staging.staged_source import Files, Source, version

_QUIET_S = 0.5  # seconds to wait for a lock before a message is printed
_PAGE = 4096  # bytes, because a file in memory occupies complete pages
_MOST_KEPT = 1_000_000_000  # bytes kept free on a large disk, where a tenth would be too much
_CONTAINER_SHM = 64 * 2**20  # bytes of /dev/shm, the default of Docker and Kubernetes
_CONTAINER_HINT = " This is the default of a container. Start it with --shm-size=2g or --ipc=host."
_ELSEWHERE = "choose another folder with to=... (--to in a terminal)"


@dataclass(frozen=True)
class Staged:
    """A copy that this process uses. It cannot be removed before this process releases it.

    At the end of a `with` block the copy is removed, or released if other processes use it. The
    last of them then removes it.
    """

    path: Path
    bytes: int
    seconds: float  # duration of the call
    reused: bool  # whether an existing copy is used
    _place: StagingDir
    _copy: StagedCopy
    _lease: CopyLease

    def unstage(self) -> bool:
        """Remove the copy unless another process uses it, and return whether it was removed."""
        with self._place.locked(self._copy.key):
            self._lease.end()
            return self._copy.remove()

    def keep(self) -> None:
        """Keep the copy until `unstage` removes it, even after the last `with` block."""
        self._copy.keep()
        self._lease.end()

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *error: object) -> None:
        if self._copy.is_kept:
            self._lease.end()
        else:
            self.unstage()

    def __repr__(self) -> str:
        """Return path, size and time of the copy."""
        how = "an existing copy" if self.reused else f"copied in {self.seconds:.1f} s"
        return f"Staged {self.path}: {size(self.bytes)}, {how}"


def stage_to_shm(
    source: str | os.PathLike[str],
    *,
    fs: Any = None,
    to: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Staged:
    """Copy a file or a folder to /dev/shm, or use the existing copy.

    The copy is reused as long as the sizes and modification times of the source are the same. If
    several processes stage the same source, one copies and the others wait. Only the current user
    can read the copy. A tenth of the memory must stay free for the batches of workers. On a disk, a
    tenth or 1 GB must stay free.

    Args:
        source: A path, an fsspec URL such as "s3://bucket/shards", or a path on `fs`.
        fs: fsspec file system to read from. None for the local machine or the one of the URL.
        to: Folder for copies instead of /dev/shm, such as a local NVMe. Without /dev/shm (macOS,
            Windows), the default is the temporary folder.
        progress: Whether to show a progress bar.

    Raises:
        KeepfedError: If the source does not exist or cannot be read, the target cannot be written
            or has too little space, or the source changes during the copy.
    """
    start = time.perf_counter()
    wanted = Source(source, fs)
    files = wanted.look()  # before a folder is made
    folder = _folder(to).resolve()
    is_local_folder = wanted.fs is None and "" not in files
    if is_local_folder and Path(wanted.path).resolve() in (folder, *folder.parents):
        raise KeepfedError(
            f"{folder} is inside {wanted.path}, so the copy would contain itself. To fix this, "
            f"{_ELSEWHERE}."
        )
    place = find_staging_dir(to)
    if to is None and not place.in_memory:
        print(f"This system has no /dev/shm, so the copy is stored on disk, in {place.folder}.")
    with _explained(place):
        place.sweep()
        with place.locked(wanted.key):
            copy = StagedCopy(place.folder / f"{wanted.key}-{version(files)}")
            reused = copy.is_untouched
            if not reused:
                for old in place.copies(wanted.key):
                    old.remove()
                if copy.folder.exists():
                    raise KeepfedError(
                        f"A program changed the copy in {copy.folder}, but it is still in use. End "
                        "the jobs that use it, then stage again."
                    )
                place.require_free_space(wanted.name, files)
                copy.make(wanted, files, progress=progress)
            lease = CopyLease(copy)
    seconds = time.perf_counter() - start
    return Staged(copy.path, copy.seal["bytes"], seconds, reused, place, copy, lease)


def unstage(
    source: str | os.PathLike[str] | None = None,
    *,
    fs: Any = None,
    to: str | os.PathLike[str] | None = None,
) -> bool:
    """Remove the copies of a source, or all copies if `source` is None.

    `source`, `fs` and `to` are those of `stage_to_shm`.

    Returns:
        Whether all of them were removed. A copy that a job uses is not removed.
    """
    place, gone = find_staging_dir(to), True
    with _explained(place):
        place.sweep()
        for copy in place.copies("*" if source is None else Source(source, fs).key):
            with place.locked(copy.key):
                gone &= copy.remove()
    return gone


def staged_copies(
    source: str | os.PathLike[str] | None = None, *, to: str | os.PathLike[str] | None = None
) -> list[StagedCopy]:
    """Return the copies of a source, or all copies. Printing one shows its size and source."""
    key = "*" if source is None else Source(source).key
    return [copy for copy in find_staging_dir(to).copies(key) if copy.seal]


@contextmanager
def _explained(place: StagingDir) -> Iterator[None]:
    """Turn errors of the system into readable ones."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise KeepfedError(
                f"{place.folder.parent} became full during the copy, and the copy was removed. "
                f"Remove another copy (`keepfed stage --list` shows them), or {_ELSEWHERE}."
            ) from error
        raise KeepfedError(sentence(error, elsewhere=_ELSEWHERE)) from error


@dataclass(frozen=True)
class StagingDir:
    """The folder for this user's copies, in /dev/shm or on a disk."""

    folder: Path
    in_memory: bool

    def copies(self, key: str = "*") -> list[StagedCopy]:
        """Return the copies of one source, or of all sources."""
        return [StagedCopy(folder) for folder in sorted(self.folder.glob(f"{key}-*"))]

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the lock of a source, and delete what a killed process left of its copy.

        The lock is required for staging and removing, and the system releases it when the process
        ends. If another process holds it, a message says after a moment why nothing happens.
        """
        lock = self._lock(key)
        try:
            try:
                lock.acquire(timeout=_QUIET_S)
            except Timeout:
                print("Waiting for another process that stages the same data.", flush=True)
                lock.acquire()
            delete(unfinished(self.folder, key))
            yield
        finally:
            lock.release(force=True)

    def sweep(self) -> None:
        """Delete what killed processes left. Copies in progress are protected by their locks."""
        for path in self.folder.glob(".*.unfinished"):
            lock = self._lock(path.name.split(".")[1])
            try:
                lock.acquire(timeout=0)
                delete(path)
            except Timeout:
                continue
            finally:
                lock.release(force=True)

    def _lock(self, key: str) -> FileLock:
        # If an interrupt skips the release, a notebook may keep the frame with the lock in its
        # traceback. The next call gets the same lock, and releases it.
        return FileLock(self.folder / f".{key}.lock", is_singleton=True)

    def require_free_space(self, name: str, files: Files) -> None:
        """Check that the files fit into the folder, and into memory if the folder is in memory.

        Raises:
            KeepfedError: If too little would stay free.
        """
        needed = sum(-(-file.size // _PAGE) * _PAGE for file in files.values())
        space = shutil.disk_usage(self.folder)
        kept = space.total // 10 if self.in_memory else min(space.total // 10, _MOST_KEPT)
        limits = [(str(self.folder.parent), space.free, kept)]
        free_memory = known(memory_free) if self.in_memory else None
        if free_memory is not None:
            limits.append(("the memory of this machine or container", free_memory, memory() // 10))
        hint = _CONTAINER_HINT if self.in_memory and space.total == _CONTAINER_SHM else ""
        for where, free, kept in limits:
            if free - kept < needed:
                raise KeepfedError(
                    f"{name} needs {size(needed)}, but {where} has {size(free)} free, and "
                    f"{size(kept)} must stay free. Remove a copy (`keepfed stage --list`), stage "
                    f"less, or {_ELSEWHERE}.{hint}"
                )


def find_staging_dir(to: str | os.PathLike[str] | None = None) -> StagingDir:
    """Return the folder for copies in `to`; by default in /dev/shm or the temporary folder.

    Raises:
        KeepfedError: If the folder cannot be created, is a URL, or belongs to another user.
    """
    folder = _folder(to)
    root = folder.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        # every user may write to /dev/shm, so another user could have created this folder or link
        own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not stat.S_ISDIR(status.st_mode) or not own:
            raise KeepfedError(f"{folder} belongs to another user. To fix this, {_ELSEWHERE}.")
        folder.chmod(0o700)
    except OSError as error:
        error.filename = str(root)
        raise KeepfedError(sentence(error, elsewhere=_ELSEWHERE)) from None
    return StagingDir(folder, SHM in folder.resolve().parents)


def _folder(to: str | os.PathLike[str] | None) -> Path:
    if to is not None and "://" in os.fspath(to):
        raise KeepfedError(f"{to} is not on this machine. To fix this, {_ELSEWHERE}.")
    usual = SHM if SHM.is_dir() else Path(tempfile.gettempdir())
    root = usual if to is None else Path(to).expanduser().absolute()
    return root / f"keepfed-{os.getuid() if hasattr(os, 'getuid') else getpass.getuser()}"
