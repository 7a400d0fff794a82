"""Stage data: copy them once to /dev/shm, whole or not at all, and let every job there use them.

    with stage_to_shm("/lustre/events-M") as staged:
        events = MemmapEvents(staged.path)

A copy in /dev/shm is no faster than a file in a warm page cache, but nothing evicts it. It costs
memory: that of the machine, and of what the batches of workers travel through.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from course_utils.errors import CourseError, sentence
from course_utils.loading.cache.staged_copy import Place, StagedCopy, Use, find_place
from course_utils.loading.cache.staged_source import find_source, key_of
from course_utils.words import size


@dataclass(frozen=True)
class Staged:
    """A copy that this process uses; it can be handed on wherever a path is asked for.

    It stays until `unstage()`, or until the `with` ends that made it; others that use it are not
    disturbed: then the last of them removes it.
    """

    path: Path
    bytes: int
    seconds: float  # that the call took
    reused: bool  # whether a copy was there already
    _place: Place
    _copy: StagedCopy
    _use: Use

    def unstage(self) -> bool:
        """Remove the copy, unless another process uses it; return whether it is gone."""
        with self._place.locked(self._copy.key):
            self._use.end()
            return not self._copy.folder.exists() or self._copy.remove()

    def keep(self) -> None:
        """Let the copy stay until it is removed by `unstage`, even if its maker wanted it gone."""
        self._copy.keep()
        self._use.end()

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.reused or self._copy.is_doomed:
            self.unstage()
        self._use.end()

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        """Say what is where."""
        how = "already there" if self.reused else f"copied in {self.seconds:.1f} s"
        return f"Staged {self.path}: {size(self.bytes)}, {how}"

    def __reduce__(self) -> tuple[type[Path], tuple[str]]:
        """Go to a worker as a path: only the process that staged it may remove it."""
        return Path, (str(self.path),)


def stage_to_shm(
    source: str | os.PathLike[str],
    *,
    fs: Any = None,
    to: str | os.PathLike[str] | None = None,
    keep_free: int | None = None,
    progress: bool = True,
) -> Staged:
    """Copy a file or a folder to /dev/shm, or find the copy that is there already.

    The copy is read back and compared with the CRC-32 of what was read. It is used again as long as
    sizes and times of change of the source are the same; of several processes that stage the same,
    one copies and the others wait. Only the present user can read it.

    Args:
        source: a path, a URL of fsspec such as "s3://bucket/shards", or a path on `fs`.
        fs: fsspec file system to read from; None: this machine, or what the URL says.
        to: folder for copies instead of /dev/shm, such as a local NVMe. Without /dev/shm (macOS,
            Windows) it is the temp folder.
        keep_free: bytes of the place and of the memory that must stay free, for the batches of
            workers; None: a tenth of each.
        progress: whether to show a progress bar.

    Raises:
        CourseError: no such source, no right to read or write, too little room, the source changed
            while it was copied, or the copy is not what was read.
    """
    start = time.perf_counter()
    place = find_place(to)
    if to is None and not place.in_memory:
        print(f"There is no /dev/shm here; the copy goes to the disk, to {place.folder}.")
    with _explained(place):
        place.sweep()
        key = key_of(source, fs)
        with place.locked(key):
            found = find_source(source, fs)
            copy = place.copy(key, found.version)
            reused = copy.is_untouched
            if not reused:
                for old in place.copies(key):
                    old.remove()
                if copy.folder.exists():
                    raise CourseError(
                        f"Something wrote into {copy.folder} while it is in use; end the jobs that "
                        "use it, and stage again."
                    )
                place.need_room(found.name, found.room, keep_free)
                copy.make(found, reserve=place.in_memory, progress=progress)
            use = Use(copy)
    seconds = time.perf_counter() - start
    return Staged(copy.path, found.bytes, seconds, reused, place, copy, use)


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
        for copy in place.copies("*" if source is None else key_of(source, fs)):
            with place.locked(copy.key):
                gone &= not copy.folder.exists() or copy.remove()
    return gone


def staged_copies(*, to: str | os.PathLike[str] | None = None) -> list[StagedCopy]:
    """Return the copies that are there; print one to see what it is."""
    return [copy for copy in find_place(to).copies() if copy.seal]


@contextmanager
def _explained(place: Place) -> Iterator[None]:
    """Say in one sentence what the system refuses."""
    elsewhere = "name another place with to=... (--to in a terminal)"
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise CourseError(
                f"{place.folder.parent} became full while it was copied to, so there is no copy; "
                f"remove copies with `course stage --remove`, or {elsewhere}."
            ) from error
        raise CourseError(sentence(error, elsewhere=elsewhere)) from error
