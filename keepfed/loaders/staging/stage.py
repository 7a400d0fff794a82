"""Stage data: copy them once to /dev/shm, whole or not at all, and let every job there use them.

    with stage_to_shm("/lustre/events-M") as staged:
        events = MemmapEvents(staged.path)

A copy in /dev/shm is no faster than a file in a warm page cache, but nothing evicts it. It costs
memory: that of the machine, and of what the batches of workers travel through.
"""

from __future__ import annotations

import errno
import getpass
import os
import platform
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepfed.errors import KeepfedError, sentence
from keepfed.limits import SHM, known, memory, memory_free
from keepfed.loaders.staging.staged_copy import StagedCopy, Use, delete, unfinished
from keepfed.loaders.staging.staged_source import Files, Source, version
from keepfed.words import size

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_MOMENT_S = 0.5  # that a lock is waited for before anything is said
_PAGE = 4096  # bytes; in memory each file fills whole pages
_KEPT_OF_A_DISK = 1_000_000_000  # bytes; a tenth of a large one is more than most laptops have left
_ELSEWHERE = "name another place with to=... (--to in a terminal)"


@dataclass(frozen=True)
class Staged:
    """A copy that this process uses; until it ends, or says so, nobody removes the copy.

    After a `with` the copy goes, unless others use it: then the last of them removes it.
    """

    path: Path
    bytes: int
    seconds: float  # that the call took
    reused: bool  # whether a copy was there already
    _place: StagingDir
    _copy: StagedCopy
    _use: Use

    def unstage(self) -> bool:
        """Remove the copy, unless another process uses it; return whether it is gone."""
        with self._place.locked(self._copy.key):
            self._use.end()
            return self._copy.remove()

    def keep(self) -> None:
        """Let the copy stay until `unstage` removes it, whoever leaves a `with` before."""
        self._copy.keep()
        self._use.end()

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *error: object) -> None:
        if self._copy.is_kept:
            self._use.end()
        else:
            self.unstage()

    def __repr__(self) -> str:
        """Say what is where."""
        how = "already there" if self.reused else f"copied in {self.seconds:.1f} s"
        return f"Staged {self.path}: {size(self.bytes)}, {how}"


def stage_to_shm(
    source: str | os.PathLike[str],
    *,
    fs: Any = None,
    to: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Staged:
    """Copy a file or a folder to /dev/shm, or find the copy that is there already.

    The copy is read back and compared with the CRC-32 of what was read. It is used again as long as
    sizes and times of change of the source are the same; of several processes that stage the same,
    one copies and the others wait. Only the present user can read it. A tenth of the memory must
    stay free, for the batches of workers; of a disk a tenth too, but not more than 1 GB.

    Args:
        source: a path, a URL of fsspec such as "s3://bucket/shards", or a path on `fs`.
        fs: fsspec file system to read from; None: this machine, or what the URL says.
        to: folder for copies instead of /dev/shm, such as a local NVMe. Without /dev/shm (macOS,
            Windows) it is the temp folder.
        progress: whether to show a progress bar.

    Raises:
        KeepfedError: no such source, no right to read or write, too little room, the source changed
            while it was copied, or the copy is not what was read.
    """
    start = time.perf_counter()
    place, wanted = find_place(to), Source(source, fs)
    if to is None and not place.in_memory:
        print(f"There is no /dev/shm here; the copy goes to the disk, to {place.folder}.")
    with _explained(place):
        place.sweep()
        with place.locked(wanted.key):
            files = wanted.look()
            copy = StagedCopy(place.folder / f"{wanted.key}-{version(files)}")
            reused = copy.is_untouched
            if not reused:
                for old in place.copies(wanted.key):
                    old.remove()
                if copy.folder.exists():
                    raise KeepfedError(
                        f"Something wrote into {copy.folder} while it is in use; end the jobs that "
                        "use it, and stage again."
                    )
                place.need_room(wanted.name, files)
                copy.make(wanted, files, progress=progress)
            use = Use(copy)
    seconds = time.perf_counter() - start
    return Staged(copy.path, copy.seal["bytes"], seconds, reused, place, copy, use)


def unstage(
    source: str | os.PathLike[str] | None = None,
    *,
    fs: Any = None,
    to: str | os.PathLike[str] | None = None,
) -> bool:
    """Remove the copies of a source, or all; return whether no job uses one, so that all are gone.

    The arguments are those of `stage_to_shm`.
    """
    place, gone = find_place(to), True
    with _explained(place):
        place.sweep()
        for copy in place.copies("*" if source is None else Source(source, fs).key):
            with place.locked(copy.key):
                gone &= copy.remove()
    return gone


def staged_copies(
    source: str | os.PathLike[str] | None = None, *, to: str | os.PathLike[str] | None = None
) -> list[StagedCopy]:
    """Return the copies of a source, or all; print one to see what it is."""
    key = "*" if source is None else Source(source).key
    return [copy for copy in find_place(to).copies(key) if copy.seal]


@contextmanager
def _explained(place: StagingDir) -> Iterator[None]:
    """Say in one sentence what the system refuses."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise KeepfedError(
                f"{place.folder.parent} became full while it was copied to, so there is no copy; "
                f"remove a copy that `keepfed stage --list` shows, or {_ELSEWHERE}."
            ) from error
        raise KeepfedError(sentence(error, elsewhere=_ELSEWHERE)) from error


@dataclass(frozen=True)
class StagingDir:
    """A private folder for copies, in memory where there is /dev/shm."""

    folder: Path
    in_memory: bool

    def copies(self, key: str = "*") -> list[StagedCopy]:
        """Return the copies of one source or of all."""
        return [StagedCopy(folder) for folder in sorted(self.folder.glob(f"{key}-*"))]

    @contextmanager
    def locked(self, key: str, *, patient: bool = True) -> Iterator[None]:
        """Hold the right to stage and remove copies of a source; it ends with the process.

        What a killed process left is cleared away. Those who are not patient only do that, if
        nobody else holds the right. A thread holds it once, not twice.
        """
        path = self.folder / f".{key}.lock"
        mine = path, os.getpid(), threading.get_ident()
        _release(mine)  # what a call left that was interrupted on its way out
        handle = _handles[mine] = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if _lock(handle) or (patient and _wait_for_lock(handle, path)):
                os.ftruncate(handle, 0)
                with suppress(OSError):  # a full disk
                    os.write(handle, f"process {os.getpid()} on {platform.node()}".encode())
                delete(unfinished(self.folder, key))
            yield
        finally:
            _release(mine)

    def sweep(self) -> None:
        """Clear away what killed runs left, unless its lock shows that the run is alive."""
        for path in self.folder.glob(".*.unfinished"):
            with self.locked(path.name.split(".")[1], patient=False):
                pass

    def need_room(self, name: str, files: Files) -> None:
        """Refuse what does not fit, into the place or into the memory that the place takes.

        Raises:
            KeepfedError: less than what has to stay free would be left.
        """
        needed = sum(-(-file.size // _PAGE) * _PAGE for file in files.values())
        space = shutil.disk_usage(self.folder)
        kept = space.total // 10 if self.in_memory else min(space.total // 10, _KEPT_OF_A_DISK)
        limits = [(str(self.folder.parent), space.free, kept)]
        free_memory = known(memory_free) if self.in_memory else None
        if free_memory is not None:
            whose = "this machine or its container, whose memory that takes,"
            limits.append((whose, free_memory, memory() // 10))
        for where, free, kept in limits:
            if free - kept < needed:
                raise KeepfedError(
                    f"{name} needs {size(needed)}, but {where} has {size(free)} free, of which "
                    f"{size(kept)} are kept free; remove a copy that "
                    f"`keepfed stage --list` shows, stage less, or {_ELSEWHERE}."
                )


def find_place(to: str | os.PathLike[str] | None = None) -> StagingDir:
    """Return the private folder in `to`, in /dev/shm or, where there is none, in the temp folder.

    Raises:
        KeepfedError: the folder cannot be made, or belongs to somebody else.
    """
    if to is not None:
        root = Path(to).expanduser().absolute()
    else:
        root = SHM if SHM.is_dir() else Path(tempfile.gettempdir())
    user = str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()
    folder = root / f"keepfed-{user}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        # /dev/shm is open to all: somebody could have put a folder or a link of theirs there
        own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not stat.S_ISDIR(status.st_mode) or not own:
            raise KeepfedError(f"{folder} is not yours; {_ELSEWHERE}.")
        folder.chmod(0o700)
    except PermissionError:
        raise KeepfedError(f"Writing to {root} is not allowed; {_ELSEWHERE}.") from None
    except (FileExistsError, NotADirectoryError):
        raise KeepfedError(f"{root} is a file, not a folder; {_ELSEWHERE}.") from None
    return StagingDir(folder, SHM in folder.resolve().parents)


# Open lock files, by path, process and thread. Not only in the frame that opened them: an interrupt
# may come when nothing there would give the lock back, and a notebook keeps its traceback for ever.
_handles: dict[tuple[Path, int, int], int] = {}


def _lock(handle: int) -> bool:
    """Take the lock if it is free; tell whether it was."""
    with suppress(BlockingIOError, PermissionError):
        if sys.platform == "win32":
            os.lseek(handle, 2**30, os.SEEK_SET)  # whom to wait for is read from the beginning
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _wait_for_lock(handle: int, path: Path) -> bool:
    """Ask until the lock is free; after a moment say whose it is."""
    begun, is_said = time.monotonic(), False
    while not _lock(handle):
        if not is_said and time.monotonic() - begun > _MOMENT_S:
            is_said = True
            who = path.read_text(encoding="utf-8")
            print(f"Another process is staging the same; waiting for it ({who}).", flush=True)
        time.sleep(0.02)
    return True


def _release(mine: tuple[Path, int, int]) -> None:
    if (handle := _handles.get(mine)) is not None:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_UN)  # whoever else, a forked process, has it open
        os.close(_handles.pop(mine))
